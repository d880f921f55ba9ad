//! The environment variables of OpenTelemetry: a layer below the file, so that what is written for
//! this relay wins over what holds for all services of a machine.

use std::collections::BTreeMap;

use super::layers::{Layers, Origin};
use super::path::Path;
use super::sections::{ConfigFile, keys, path_of};
use crate::base::settings::kind::RawValue;
use crate::trace::TracingSettings;

const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HTTP_PROTOBUF: &str = "http/protobuf";

pub(crate) fn environment(layers: &mut Layers, variables: &BTreeMap<String, String>) {
    let is = |name: &str, value: &str| variables.get(name).is_some_and(|it| it.trim() == value);
    let is_off = is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none");
    // An endpoint for another protocol would answer every request with an error.
    let other_protocol = variables.contains_key(PROTOCOL) && !is(PROTOCOL, HTTP_PROTOBUF);
    // A machine may set these for its other services.
    if is_off || other_protocol || !cfg!(feature = "otlp") {
        return;
    }
    // What the argument means, the sampler says; only a ratio has this form.
    let sampler = variables.get("OTEL_TRACES_SAMPLER").map(|it| it.trim()).unwrap_or_default();
    let has_ratio = sampler.is_empty() || sampler.ends_with("traceidratio");
    let known = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", path_of!(ConfigFile.tracing / TracingSettings.endpoint)),
        ("OTEL_EXPORTER_OTLP_HEADERS", path_of!(ConfigFile.tracing / TracingSettings.headers)),
        ("OTEL_SERVICE_NAME", path_of!(ConfigFile.tracing / TracingSettings.service_name)),
        ("OTEL_TRACES_SAMPLER_ARG", path_of!(ConfigFile.tracing / TracingSettings.sample_ratio)),
    ];
    for (name, path) in known {
        // An empty variable counts as one that is not set.
        let is_meant = has_ratio || name != "OTEL_TRACES_SAMPLER_ARG";
        if let Some(value) = variables.get(name).filter(|value| is_meant && !value.is_empty()) {
            set(layers, name, path, value);
        }
    }
}

fn set(layers: &mut Layers, name: &str, path: Path, value: &str) {
    let key = keys().iter().find(|key| key.path() == path.to_string());
    if let Some(key) = key {
        let origin = Origin::Variable(name.to_owned());
        layers.set(path, key.row, RawValue::Word(value.to_owned()), &origin);
    }
}

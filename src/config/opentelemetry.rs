//! The environment variables of OpenTelemetry: a layer below the file, so that what is written for
//! this relay wins over what holds for all services of a machine.

use super::sections::{ConfigFile, path_of};
use crate::base::settings::kind::Raw;
use crate::base::settings::{Origin, Tree};
use crate::trace::TracingSettings;

const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Adds the variables to the tree, before the file and all else that wins over them.
pub(crate) fn environment(tree: &mut Tree) {
    let of = |name: &str| tree.variables.get(name).map(|it| it.trim());
    let sampler = of("OTEL_TRACES_SAMPLER").unwrap_or_default();
    let is_off = of("OTEL_SDK_DISABLED") == Some("true")
        || of("OTEL_TRACES_EXPORTER") == Some("none")
        || sampler.ends_with("always_off");
    // An endpoint for another protocol would answer every request with an error.
    let other_protocol = of(PROTOCOL).is_some_and(|it| !it.is_empty() && it != "http/protobuf");
    // A machine may set these for its other services.
    if is_off || other_protocol || !cfg!(feature = "otlp") {
        return;
    }
    // What the argument means, the sampler says; only a ratio has this form.
    let has_ratio = sampler.is_empty() || sampler.ends_with("traceidratio");
    let known = [
        (ENDPOINT, path_of!(ConfigFile.tracing / TracingSettings.endpoint)),
        (HEADERS, path_of!(ConfigFile.tracing / TracingSettings.headers)),
        ("OTEL_SERVICE_NAME", path_of!(ConfigFile.tracing / TracingSettings.service_name)),
        ("OTEL_TRACES_SAMPLER_ARG", path_of!(ConfigFile.tracing / TracingSettings.sample_ratio)),
    ];
    for (name, path) in known.into_iter().take(if has_ratio { 4 } else { 3 }) {
        // An empty variable counts as one that is not set.
        let value = tree.variables.get(name).filter(|value| !value.is_empty());
        if let Some(value) = value.cloned() {
            tree.set(path, Raw::Word(value), &Origin::Variable(name.to_owned()));
        }
    }
}

/// Takes the headers of the variable out of the complete tree if a variable also names an endpoint, and the tree has
/// another: they may hold a token for that endpoint.
pub(crate) fn keep_headers_from_others(tree: &mut Tree) {
    let headers = path_of!(ConfigFile.tracing / TracingSettings.headers);
    let endpoint = path_of!(ConfigFile.tracing / TracingSettings.endpoint);
    let own = tree.variables.get(ENDPOINT).filter(|value| !value.is_empty());
    let is_own = tree.given.get(&endpoint).is_some_and(|it| match &it.raw {
        Raw::Word(text) | Raw::Text(text) => own == Some(text),
        Raw::Reference(read) => {
            read().is_ok_and(|it| own.is_some_and(|own| it.expose() == own.as_str()))
        }
        _ => false,
    });
    let is_of_variable = tree
        .given
        .get(&headers)
        .is_some_and(|it| matches!(&it.origin, Origin::Variable(name) if name == HEADERS));
    if own.is_some() && !is_own && is_of_variable {
        tree.given.remove(&headers);
    }
}

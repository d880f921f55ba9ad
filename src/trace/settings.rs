//! The section `[tracing]`.

use std::path::PathBuf;

use crate::base::secret::Secret;
use crate::base::settings::kind::FILLED;
use crate::base::settings::{ratio, secret, settings, text, url};

settings! {
    /// The `[tracing]` section.
    #[derive(Clone, Debug)]
    pub struct TracingSettings {
        /// Where the spans of published events go: the base URL of an OTLP receiver over HTTP, as in
        /// `http://collector:4318`; `/v1/traces` is added. Else `OTEL_EXPORTER_OTLP_ENDPOINT`.
        pub endpoint: Option<Secret> = url().or_none("no traces"),
        /// How many of the events get a span, by their trace ids: the same trace always gets the
        /// same answer. Else `OTEL_TRACES_SAMPLER_ARG`.
        pub sample_ratio: f64 = ratio().default("1.0"),
        /// `service.name` of the spans. Else `OTEL_SERVICE_NAME`.
        pub service_name: String = text(FILLED).default("walrelay"),
        /// Headers of each request, as in `authorization=Bearer%20x,tenant=y`; values are
        /// percent-encoded. A secret. Else `OTEL_EXPORTER_OTLP_HEADERS`.
        pub headers: Option<Secret> = secret().or_none("none"),
        /// PEM file of the authorities that may have signed the receiver's certificate.
        pub ca_file: Option<PathBuf> = text(FILLED).or_none("those of the system"),
    }
}

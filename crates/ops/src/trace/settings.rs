//! The section `[tracing]`.

use std::path::PathBuf;

use walrelay_base::secret::Secret;
use walrelay_base::settings::kind::FILLED;
use walrelay_base::settings::{ratio, secret, settings, text, url};

settings! {
    /// The `[tracing]` section.
    #[derive(Clone, Debug)]
    pub struct TracingSettings {
        /// Base URL of the OTLP receiver (over HTTP) for the spans of published events, as in
        /// `http://collector:4318`; `/v1/traces` is added. If unset, `OTEL_EXPORTER_OTLP_ENDPOINT`
        /// is used.
        pub endpoint: Option<Secret> = url().or_none("no traces"),
        /// Share of the events that get a span. The trace id decides, so all events of one trace
        /// get a span, or none does. If unset, `OTEL_TRACES_SAMPLER_ARG` is used.
        pub sample_ratio: f64 = ratio().default("1.0"),
        /// `service.name` of the spans. If unset, `OTEL_SERVICE_NAME` is used.
        pub service_name: String = text(FILLED).default("walrelay"),
        /// Headers of each request, as in `authorization=Bearer%20x,tenant=y`; values are
        /// percent-encoded. A secret. If unset, `OTEL_EXPORTER_OTLP_HEADERS` is used, unless
        /// `OTEL_EXPORTER_OTLP_ENDPOINT` is another endpoint.
        pub headers: Option<Secret> = secret().or_none("none"),
        /// PEM file of the certificate authorities that are trusted to sign the receiver's
        /// certificate.
        pub ca_file: Option<PathBuf> = text(FILLED).or_none("those of the system"),
    }
}

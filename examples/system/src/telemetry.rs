//! Logs to the terminal, spans to an OpenTelemetry collector over plain HTTP.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` says where the collector is; without it no spans are made. The exporter
//! is as small as it can be: in a service of your own, take `opentelemetry-otlp`.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use axum::http::HeaderMap;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, global};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use prost::Message as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Failed;

const TIMEOUT: Duration = Duration::from_secs(2);
const HEADER: &str = "traceparent";

/// Sends what is left when dropped.
pub struct Telemetry(Option<SdkTracerProvider>);

impl Telemetry {
    pub fn start(service: &'static str) -> Result<Telemetry, Failed> {
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
        // The AMQP client logs messages that are returned to it, with their payload.
        let filter = filter.parse::<Targets>()?.with_target("lapin", LevelFilter::OFF);
        let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
        lines.with_target(false).finish().with(filter).init();
        global::set_text_map_propagator(TraceContextPropagator::new());
        let Ok(endpoint) = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT") else {
            return Ok(Telemetry(None));
        };
        let authority = endpoint.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let authority =
            authority.ok_or("OTEL_EXPORTER_OTLP_ENDPOINT: only http:// is understood")?;
        let exporter = Exporter {
            authority: authority.to_owned(),
            resource: ResourceAttributesWithSchema::default(),
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(Resource::builder().with_service_name(service).build())
            .with_batch_exporter(exporter)
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(Telemetry(Some(provider)))
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|provider| provider.shutdown()) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// The trace that a request belongs to, if it says so.
#[must_use]
pub fn http_parent(headers: &HeaderMap) -> Context {
    let header = headers.get(HEADER).and_then(|value| value.to_str().ok());
    let carrier: HashMap<String, String> =
        header.map(|text| (HEADER.to_owned(), text.to_owned())).into_iter().collect();
    global::get_text_map_propagator(|propagator| propagator.extract(&carrier))
}

/// The value for the column `traceparent` of an outbox row; none where no spans are made.
#[must_use]
pub fn traceparent(context: &Context) -> Option<String> {
    let mut carrier = HashMap::new();
    if context.span().span_context().is_valid() {
        global::get_text_map_propagator(|propagator| {
            propagator.inject_context(context, &mut carrier);
        });
    }
    carrier.remove(HEADER)
}

#[derive(Debug)]
struct Exporter {
    authority: String,
    resource: ResourceAttributesWithSchema,
}

impl SpanExporter for Exporter {
    /// Blocks: the batch processor of the SDK calls it on a thread of its own.
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        match self.post(&body) {
            Ok(true) => Ok(()),
            Ok(false) => Err(OTelSdkError::InternalFailure("the collector refused spans".into())),
            Err(error) => Err(OTelSdkError::InternalFailure(error.to_string())),
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

impl Exporter {
    /// True when the collector has taken the spans.
    fn post(&self, body: &[u8]) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-protobuf\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.authority,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    }
}

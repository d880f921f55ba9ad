//! A receiver of spans: OTLP over HTTP, decoded with the types that OpenTelemetry publishes. It keeps
//! what it gets, and answers as it is told to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
pub use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
pub use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
pub use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;

use crate::kit::lock;
use crate::{HarnessError, Result};

/// Larger requests are refused.
const BODY_BYTES_MAX: usize = 16 << 20;

pub struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Received>,
    ended: AtomicBool,
}

/// The requests so far, and the answer to the next one.
#[derive(Clone, Default)]
pub struct Received {
    pub requests: Vec<ReceivedRequest>,
    pub resources: Vec<ResourceSpans>,
    /// 0 is 200.
    status: u16,
    rejects: i64,
}

#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub spans: usize,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name)?;
        Some(&found.1)
    }
}

impl Received {
    pub fn spans(&self) -> Vec<Span> {
        let scopes = self.resources.iter().flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned()).collect()
    }
}

impl Collector {
    pub fn start() -> Result<Collector> {
        Collector::start_at(([127, 0, 0, 1], 0).into())
    }

    pub fn start_at(address: SocketAddr) -> Result<Collector> {
        let listener = TcpListener::bind(address).map_err(HarnessError::io("listen"))?;
        let address = listener.local_addr().map_err(HarnessError::io("listen"))?;
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.ended.load(Ordering::Relaxed) {
                    return;
                }
                let own = Arc::clone(&own);
                std::thread::spawn(move || serve(&stream, &own));
            }
        });
        Ok(Collector { address, shared })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn received(&self) -> Received {
        self.shared.lock().clone()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.received().spans()
    }

    /// Sets the status of the next answers; only a request that is answered 200 is kept.
    pub fn answer(&self, status: u16) {
        self.shared.lock().status = status;
    }

    /// How many spans of the next requests are said to be rejected.
    pub fn reject(&self, spans: i64) {
        self.shared.lock().rejects = spans;
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Ends the wait for the next connection.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Received> {
        lock(&self.received)
    }

    fn take(&self, mut request: ReceivedRequest, body: &[u8]) -> (u16, Vec<u8>) {
        let Ok(resources) = decode(body) else { return (400, Vec::new()) };
        let mut received = self.lock();
        let scopes = resources.iter().flat_map(|resource| &resource.scope_spans);
        request.spans = scopes.map(|scope| scope.spans.len()).sum();
        received.requests.push(request);
        match received.status {
            0 | 200 => {}
            status => return (status, Vec::new()),
        }
        received.resources.extend(resources);
        let rejected_spans = received.rejects;
        let partial_success = (rejected_spans > 0).then(|| ExportTracePartialSuccess {
            rejected_spans,
            error_message: "as it was told to".to_owned(),
        });
        (200, ExportTraceServiceResponse { partial_success }.encode_to_vec())
    }
}

/// The body of a request.
pub fn decode(body: &[u8]) -> Result<Vec<ResourceSpans>> {
    let request = ExportTraceServiceRequest::decode(body);
    let request = request.map_err(|error| HarnessError::Other(format!("not OTLP: {error}")))?;
    Ok(request.resource_spans)
}

/// The value of an attribute as text; numbers and booleans as they are written.
pub fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => format!("{other:?}"),
    })
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some((request, body)) = read(&mut reader) {
        if shared.ended.load(Ordering::Relaxed) {
            return;
        }
        let (status, answer) = shared.take(request, &body);
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
        let mut stream = stream;
        if stream.write_all(&[head.as_bytes(), &answer].concat()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<(ReceivedRequest, Vec<u8>)> {
    let mut lines = reader.by_ref().lines();
    let first = lines.next()?.ok()?;
    let path = first.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let mut headers = Vec::new();
    loop {
        let line = lines.next()?.ok()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let request = ReceivedRequest { path, headers, spans: 0 };
    let length: usize = request.header("content-length")?.parse().ok()?;
    let mut body = vec![0; Some(length).filter(|length| *length <= BODY_BYTES_MAX)?];
    reader.read_exact(&mut body).ok()?;
    Some((request, body))
}

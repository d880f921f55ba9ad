//! Spans as protobuf, as far as a request of OTLP has what we send; and the only thing its answer
//! can say.
//!
//! <https://github.com/open-telemetry/opentelemetry-proto>: `trace/v1/trace.proto` and what it imports.
//! The tests compare with the published types.

use super::context::TraceContext;
use super::span::{FinishedSpan, PublishSpan};
use walrelay_base::event::MessagingNames;
use walrelay_base::time::rfc3339;

const NAME: &str = "outbox.publish";
const KIND_PRODUCER: u64 = 4;
const STATUS_ERROR: u64 = 2;
/// It is known whether the parent or the linked span is of another process.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The attributes that all spans of the process have in common.
#[derive(Clone, Debug)]
pub struct SpanSource {
    pub service_name: String,
    /// The slot or the table, and the host.
    pub instance: String,
    /// `messaging.system`.
    pub system: &'static str,
    pub names: MessagingNames,
    /// Whether the position of an event is that of its commit.
    pub has_commit_lsn: bool,
}

impl SpanSource {
    /// The body of a request.
    pub(super) fn encode(&self, spans: &[FinishedSpan]) -> Vec<u8> {
        let mut request = Protobuf::default();
        request.message(1, |resource_spans| {
            resource_spans.message(1, |resource| {
                resource.text_attribute(1, "service.name", &self.service_name);
                resource.text_attribute(1, "service.version", env!("CARGO_PKG_VERSION"));
                resource.text_attribute(1, "service.instance.id", &self.instance);
            });
            resource_spans.message(2, |scope_spans| {
                scope_spans.message(1, |scope| {
                    scope.text(1, "walrelay");
                    scope.text(2, env!("CARGO_PKG_VERSION"));
                });
                for span in spans {
                    scope_spans.message(2, |out| self.span(span, out));
                }
            });
        });
        request.0
    }

    fn span(&self, finished: &FinishedSpan, out: &mut Protobuf) {
        let FinishedSpan { span, end_unix_us, dead_letter, .. } = finished;
        out.bytes(1, &span.context.trace_id);
        out.bytes(2, &span.context.span_id);
        out.text(5, NAME);
        out.number(6, KIND_PRODUCER);
        out.fixed64(7, unix_ns(span.start_unix_us));
        out.fixed64(8, unix_ns(*end_unix_us));
        self.attributes(finished, out);
        if let Some(TraceContext { trace_id, span_id, flags }) = &span.link {
            out.message(13, |link| {
                link.bytes(1, trace_id);
                link.bytes(2, span_id);
                link.fixed32(6, u32::from(*flags) | HAS_IS_REMOTE | IS_REMOTE);
            });
        }
        if let Some(class) = dead_letter {
            out.message(15, |status| {
                status.text(2, class);
                status.number(3, STATUS_ERROR);
            });
        }
        out.fixed32(16, u32::from(span.context.flags) | HAS_IS_REMOTE);
    }

    /// Writes the attributes of the semantic conventions for messaging, and our own.
    fn attributes(&self, finished: &FinishedSpan, out: &mut Protobuf) {
        let FinishedSpan { span, retries, dead_letter, .. } = finished;
        let mut text = |name: &str, value: &str| out.text_attribute(9, name, value);
        text("messaging.system", self.system);
        text("messaging.operation.type", "send");
        text("messaging.operation.name", "publish");
        text("messaging.message.id", &span.event_id);
        let PublishSpan { exchange, topic, key, .. } = span;
        // Of an exchange and a routing key both, where there are both.
        let parts = [&**exchange, topic].into_iter().filter(|part| !part.is_empty());
        let destination = parts.collect::<Vec<_>>().join(":");
        if !destination.is_empty() {
            text("messaging.destination.name", &destination);
        }
        if let Some(name) = self.names.routing_key.filter(|_| !topic.is_empty()) {
            text(name, topic);
        }
        if let Some((name, key)) = self.names.key.zip(key.as_ref()) {
            text(name, key);
        }
        if let Some(partition) = span.partition {
            text("messaging.destination.partition.id", &partition.to_string());
        }
        let outcome = if dead_letter.is_some() { "dead_lettered" } else { "published" };
        text("outbox.outcome", outcome);
        if span.commit_unix_us != 0 {
            text("outbox.commit_timestamp", &rfc3339(span.commit_unix_us));
        }
        if self.has_commit_lsn {
            text("outbox.commit_lsn", &span.commit_lsn.to_string());
        }
        if let Some(class) = dead_letter {
            text("error.type", class);
        }
        if let Some(bytes) = span.body_bytes {
            out.number_attribute(9, "messaging.message.body.size", bytes as u64);
        } else if let Some(name) = self.names.tombstone {
            out.attribute(9, name, |value| value.number(2, 1));
        }
        out.number_attribute(9, "event.retry_count", u64::from(*retries));
    }
}

fn unix_ns(unix_us: i64) -> u64 {
    u64::try_from(unix_us).unwrap_or_default().saturating_mul(1000)
}

/// How many spans the collector has refused of a request that it took.
pub(super) fn rejected_spans(answer: &[u8]) -> u64 {
    let partial_success = field_of(answer, 1).and_then(|value| match value {
        Value::Bytes(bytes) => field_of(bytes, 1),
        Value::Number(_) => None,
    });
    match partial_success {
        Some(Value::Number(count)) => u64::try_from(count.cast_signed()).unwrap_or_default(),
        _ => 0,
    }
}

/// A message that is being written.
#[derive(Default)]
struct Protobuf(Vec<u8>);

const NUMBER: u32 = 0;
const FIXED_64: u32 = 1;
const BYTES: u32 = 2;
const FIXED_32: u32 = 5;

impl Protobuf {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, NUMBER);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED_64);
        self.0.extend(number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.tag(field, FIXED_32);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Protobuf)) {
        let mut inner = Protobuf::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u32, name: &str, value: impl FnOnce(&mut Protobuf)) {
        self.message(field, |attribute| {
            attribute.text(1, name);
            attribute.message(2, value);
        });
    }

    fn text_attribute(&mut self, field: u32, name: &str, text: &str) {
        self.attribute(field, name, |value| value.text(1, text));
    }

    fn number_attribute(&mut self, field: u32, name: &str, number: u64) {
        self.attribute(field, name, |value| value.number(3, number));
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The first field of this number, unless something is malformed before it.
fn field_of(mut message: &[u8], wanted: u64) -> Option<Value<'_>> {
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let value = match (tag & 7) as u32 {
            NUMBER => Value::Number(take_varint(&mut message)?),
            kind => {
                let length = match kind {
                    FIXED_64 => 8,
                    FIXED_32 => 4,
                    BYTES => usize::try_from(take_varint(&mut message)?).ok()?,
                    _ => return None,
                };
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Value::Bytes(bytes)
            }
        };
        if tag >> 3 == wanted {
            return Some(value);
        }
    }
    None
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;

//! CloudEvents 1.0.
//!
//! `id` is the event id, `source` the outbox, `time` the commit time. `type` is the `event_type`
//! header, and the topic where there is none. In binary mode the attributes are headers and the
//! value is untouched; in structured mode the value is one JSON document. The event's other headers
//! stay, except one that bears the name of an attribute.
//!
//! What a payload is, is found out by reading it: JSON, else text, else bytes.
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md>, with the JSON event
//! format, the Kafka and the AMQP protocol bindings beside it.

use serde_json::value::RawValue;

use super::{Binding, Context, Format};
use crate::base::event::{HeaderSlots, Outbound, TooManyHeaders};
use crate::base::time::push_rfc3339;
use crate::outbox::EventError;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data<'a> {
    Json(&'a str),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Data<'a> {
    fn of(value: &'a [u8]) -> Data<'a> {
        match (serde_json::from_slice::<&RawValue>(value), std::str::from_utf8(value)) {
            (Ok(json), _) => Data::Json(json.get()),
            (Err(_), Ok(text)) => Data::Text(text),
            (Err(_), Err(_)) => Data::Bytes(value),
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Data::Json(_) => "application/json",
            Data::Text(_) => "text/plain; charset=utf-8",
            Data::Bytes(_) => "application/octet-stream",
        }
    }
}

const CONTENT_TYPE: &str = "content-type";

/// The header that holds the type, and the topic where there is none.
fn type_of<'a>(event: &Outbound<'a>) -> &'a str {
    let header = event.headers.iter().find(|(name, _)| *name == "event_type");
    let text = header.and_then(|(_, value)| std::str::from_utf8(value).ok());
    text.filter(|text| !text.is_empty()).unwrap_or(event.topic)
}

fn header<'a>(event: &Outbound<'a>, wanted: &str) -> Option<&'a [u8]> {
    event.headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
}

fn require_id(event: &Outbound<'_>, format: &'static str) -> Result<(), EventError> {
    if !event.id.is_empty() {
        return Ok(());
    }
    let reason = "the event id is empty, and CloudEvents need one".to_owned();
    Err(EventError::Format { event: "(empty)".to_owned(), format, reason })
}

fn too_many(event: &Outbound<'_>) -> impl FnOnce(TooManyHeaders) -> EventError {
    let event = event.id.to_owned();
    |TooManyHeaders| EventError::TooManyHeaders { event }
}

/// Attribute names as the binding spells them.
#[derive(Debug)]
struct Names {
    specversion: &'static str,
    id: &'static str,
    source: &'static str,
    r#type: &'static str,
    time: &'static str,
    traceparent: &'static str,
}

const KAFKA: Names = Names {
    specversion: "ce_specversion",
    id: "ce_id",
    source: "ce_source",
    r#type: "ce_type",
    time: "ce_time",
    traceparent: "ce_traceparent",
};

const AMQP: Names = Names {
    specversion: "cloudEvents_specversion",
    id: "cloudEvents_id",
    source: "cloudEvents_source",
    r#type: "cloudEvents_type",
    time: "cloudEvents_time",
    traceparent: "cloudEvents_traceparent",
};

#[derive(Debug)]
struct Binary {
    source: String,
    names: &'static Names,
}

pub(super) fn make_binary(context: &Context) -> Box<dyn Format> {
    let names = match context.binding {
        Binding::Kafka => &KAFKA,
        Binding::Amqp => &AMQP,
    };
    Box::new(Binary { source: context.source.clone(), names })
}

impl Format for Binary {
    fn shape<'a>(
        &'a self,
        event: Outbound<'a>,
        scratch: &'a mut Vec<u8>,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        require_id(&event, "cloudevents")?;
        scratch.clear();
        push_rfc3339(scratch, event.commit_unix_us);
        let time: &'a [u8] = scratch;
        self.push(&event, time, headers).map_err(too_many(&event))?;
        Ok(Outbound { headers: headers.as_slice(), ..event })
    }
}

impl Binary {
    fn push<'a>(
        &'a self,
        event: &Outbound<'a>,
        time: &'a [u8],
        headers: &mut HeaderSlots<'a>,
    ) -> Result<(), TooManyHeaders> {
        let names = self.names;
        headers.push(names.specversion, b"1.0")?;
        headers.push(names.id, event.id.as_bytes())?;
        headers.push(names.source, self.source.as_bytes())?;
        headers.push(names.r#type, type_of(event).as_bytes())?;
        headers.push(names.time, time)?;
        if let Some(traceparent) = header(event, "traceparent") {
            headers.push(names.traceparent, traceparent)?;
        }
        if let Some(value) = event.value {
            headers.push(CONTENT_TYPE, Data::of(value).content_type().as_bytes())?;
        }
        push_others(event, headers)
    }
}

#[derive(Debug)]
struct Structured {
    source: String,
}

pub(super) fn make_structured(context: &Context) -> Box<dyn Format> {
    Box::new(Structured { source: context.source.clone() })
}

impl Format for Structured {
    fn shape<'a>(
        &'a self,
        event: Outbound<'a>,
        scratch: &'a mut Vec<u8>,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        require_id(&event, "cloudevents-structured")?;
        scratch.clear();
        self.write(&event, scratch);
        let structured = b"application/cloudevents+json; charset=UTF-8";
        headers
            .push(CONTENT_TYPE, structured)
            .and_then(|()| push_others(&event, headers))
            .map_err(too_many(&event))?;
        Ok(Outbound { value: Some(scratch), headers: headers.as_slice(), ..event })
    }
}

impl Structured {
    fn write(&self, event: &Outbound<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"specversion\":\"1.0\",\"id\":");
        push_string(out, event.id);
        out.extend_from_slice(b",\"source\":");
        push_string(out, &self.source);
        out.extend_from_slice(b",\"type\":");
        push_string(out, type_of(event));
        out.extend_from_slice(b",\"time\":\"");
        push_rfc3339(out, event.commit_unix_us);
        out.push(b'"');
        let traceparent = header(event, "traceparent");
        if let Some(text) = traceparent.and_then(|text| std::str::from_utf8(text).ok()) {
            out.extend_from_slice(b",\"traceparent\":");
            push_string(out, text);
        }
        if let Some(value) = event.value {
            push_data(out, Data::of(value));
        }
        out.push(b'}');
    }
}

fn push_data(out: &mut Vec<u8>, data: Data<'_>) {
    out.extend_from_slice(b",\"datacontenttype\":");
    push_string(out, data.content_type());
    match data {
        Data::Json(json) => {
            out.extend_from_slice(b",\"data\":");
            out.extend_from_slice(json.as_bytes());
        }
        Data::Text(text) => {
            out.extend_from_slice(b",\"data\":");
            push_string(out, text);
        }
        Data::Bytes(bytes) => {
            out.extend_from_slice(b",\"data_base64\":\"");
            push_base64(out, bytes);
            out.push(b'"');
        }
    }
}

/// The event's own headers, where no attribute took the name.
fn push_others<'a>(
    event: &Outbound<'a>,
    headers: &mut HeaderSlots<'a>,
) -> Result<(), TooManyHeaders> {
    for (name, value) in event.headers {
        if !headers.as_slice().iter().any(|(taken, _)| taken == name) {
            headers.push(name, value)?;
        }
    }
    Ok(())
}

/// A JSON string.
fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        let (plain, special) = rest.split_at(at);
        let byte = special.as_bytes()[0];
        out.extend_from_slice(plain.as_bytes());
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                let low = b"0123456789abcdef"[usize::from(control & 0xF)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (control >> 4), low]);
            }
        }
        rest = &special[1..];
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

/// Base64 with padding, RFC 4648 §4.
fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 0x3F) as usize];
            out.push(if place > chunk.len() { b'=' } else { digit });
        }
    }
}

#[cfg(test)]
#[path = "cloudevents_tests.rs"]
mod tests;

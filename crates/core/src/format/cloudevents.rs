//! CloudEvents 1.0.
//!
//! `id` is the event id, `source` the outbox, `time` the commit time. `type` is the `event_type`
//! header, or the topic where there is none. In binary mode the attributes are headers and the
//! value is unchanged; in structured mode the value is one JSON document. The event's other headers
//! stay, except one that has the name of an attribute. A payload is JSON if it can be read as JSON,
//! else text, else bytes.
//!
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md>, with the JSON event
//! format, the Kafka and the AMQP protocol bindings beside it.

use std::io::Write as _;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use crate::base::event::{CloudEventsBinding, HeaderSlots, Outbound, TRACEPARENT, TooManyHeaders};
use crate::base::time::push_rfc3339;
use crate::outbox::EventError;

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

/// The attributes in the order of their headers in binary mode.
const ATTRIBUTES: [&str; 6] = ["specversion", "id", "source", "type", "time", "traceparent"];

#[derive(Debug)]
pub struct CloudEvents {
    source: String,
    /// The names of the headers in binary mode; `None` in structured mode.
    headers: Option<[String; 6]>,
}

impl CloudEvents {
    /// In binary mode for the protocol of `binding`; in structured mode without one.
    pub(super) fn new(source: String, binding: Option<CloudEventsBinding>) -> CloudEvents {
        let headers = binding.map(|binding| {
            let prefix = match binding {
                CloudEventsBinding::Kafka => "ce",
                CloudEventsBinding::Amqp => "cloudEvents",
            };
            ATTRIBUTES.map(|attribute| format!("{prefix}_{attribute}"))
        });
        CloudEvents { source, headers }
    }

    /// Shapes one event. The scratch is kept from event to event; the headers are new.
    pub fn shape<'a>(
        &'a self,
        event: Outbound<'a>,
        scratch: &'a mut Vec<u8>,
        headers: &'a mut HeaderSlots<'a>,
    ) -> Result<Outbound<'a>, EventError> {
        scratch.clear();
        let too_many = |TooManyHeaders| EventError::too_many_headers(event.id);
        if event.id.is_empty() {
            let format = match self.headers {
                Some(_) => "cloudevents",
                None => "cloudevents-structured",
            };
            let reason = "the event id is empty, and CloudEvents need one";
            let text = format!("event (empty): format {format} cannot shape it: {reason}");
            return Err(EventError::new("format", text));
        }
        let Some(names) = &self.headers else {
            self.write_document(&event, scratch);
            let content_type = b"application/cloudevents+json; charset=UTF-8";
            headers.push(CONTENT_TYPE, content_type).map_err(too_many)?;
            push_others(&event, headers).map_err(too_many)?;
            return Ok(Outbound { value: Some(scratch), headers: headers.as_slice(), ..event });
        };
        // A polled row may have no time, and an attribute may not be empty.
        if event.commit_unix_us != 0 {
            push_rfc3339(scratch, event.commit_unix_us);
        }
        self.push_attributes(&event, names, scratch, headers).map_err(too_many)?;
        Ok(Outbound { headers: headers.as_slice(), ..event })
    }

    fn push_attributes<'a>(
        &'a self,
        event: &Outbound<'a>,
        [specversion, id, source, r#type, time, traceparent]: &'a [String; 6],
        commit_time: &'a [u8],
        headers: &mut HeaderSlots<'a>,
    ) -> Result<(), TooManyHeaders> {
        headers.push(specversion, b"1.0")?;
        headers.push(id, event.id.as_bytes())?;
        headers.push(source, self.source.as_bytes())?;
        headers.push(r#type, type_of(event).as_bytes())?;
        if !commit_time.is_empty() {
            headers.push(time, commit_time)?;
        }
        if let Some(text) = event.header(TRACEPARENT) {
            headers.push(traceparent, text)?;
        }
        if let Some(value) = event.value {
            headers.push(CONTENT_TYPE, Data::of(value).content_type().as_bytes())?;
        }
        push_others(event, headers)
    }

    fn write_document(&self, event: &Outbound<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"specversion\":\"1.0\",\"id\":");
        push_string(out, event.id);
        out.extend_from_slice(b",\"source\":");
        push_string(out, &self.source);
        out.extend_from_slice(b",\"type\":");
        push_string(out, type_of(event));
        if event.commit_unix_us != 0 {
            out.extend_from_slice(b",\"time\":\"");
            push_rfc3339(out, event.commit_unix_us);
            out.push(b'"');
        }
        let traceparent = event.header(TRACEPARENT);
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

fn type_of<'a>(event: &Outbound<'a>) -> &'a str {
    let text = event.header("event_type").and_then(|value| std::str::from_utf8(value).ok());
    let text = text.or(event.event_type);
    text.filter(|text| !text.is_empty()).unwrap_or(event.topic)
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
            // Writing to memory does not fail.
            write!(out, "{}\"", Base64Display::new(bytes, &STANDARD)).ok();
        }
    }
}

/// The event's own headers, except those with the name of an attribute.
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

fn push_string(out: &mut Vec<u8>, text: &str) {
    // Writing to memory does not fail.
    serde_json::to_writer(out, text).ok();
}

#[cfg(test)]
#[path = "cloudevents_tests.rs"]
mod tests;

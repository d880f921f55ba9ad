//! The `headers` column: a JSON object whose members become headers. Strings are unquoted, any
//! other value is its JSON text. Headers of reserved names are left out, and counted.

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

use super::json_object::{NotAnObject, opened};
use crate::base::event::{KEPT_BYTES_MAX, is_reserved_header};

/// Far more than the headers of a row that is not refused.
const SPANS_MAX: usize = 4096;

/// Headers of one row; the buffers are kept from row to row.
#[derive(Debug, Default)]
pub(super) struct RowHeaders {
    text: String,
    /// Start of the name, start of the value, end of the value.
    spans: Vec<[usize; 3]>,
    /// Headers of reserved names, which were left out.
    reserved: u32,
    refusal: Option<NotAnObject>,
}

impl RowHeaders {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.reserved = 0;
        self.refusal = None;
    }

    /// Gives memory back that only unusually large headers have needed.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if self.text.capacity() > KEPT_BYTES_MAX {
            *self = RowHeaders::default();
        }
    }

    pub(super) fn read(&mut self, json: &[u8]) -> Result<(), NotAnObject> {
        let mut deserializer = opened(json)?;
        // Unescaped it is never longer. The buffer would grow to twice that by itself.
        if json.len() > self.text.capacity() {
            self.text.reserve_exact(json.len());
        }
        let read = deserializer.deserialize_map(Object(self));
        match read.and_then(|()| deserializer.end()) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refusal.unwrap_or_else(|| NotAnObject::of(&error))),
        }
    }

    #[inline]
    pub(super) fn take_reserved(&mut self) -> u32 {
        std::mem::take(&mut self.reserved)
    }

    /// Name and value, in the order of the object. Of several members of a name the last one counts, as in
    /// jsonb and in templates.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let name = |[name, value, _]: &[usize; 3]| &self.text[*name..*value];
        let is_last = move |at: usize| {
            self.spans[at + 1..].iter().all(|it| name(it) != name(&self.spans[at]))
        };
        let spans = self.spans.iter().enumerate().filter(move |(at, _)| is_last(*at));
        spans.map(move |(_, span)| (name(span), &self.text.as_bytes()[span[1]..span[2]]))
    }
}

struct Object<'h>(&'h mut RowHeaders);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let RowHeaders { text, spans, reserved, refusal } = self.0;
        loop {
            let name = text.len();
            if map.next_key_seed(Append(text))?.is_none() {
                return Ok(());
            }
            if is_reserved_header(&text[name..]) {
                text.truncate(name);
                *reserved += 1;
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            // Clients of Kafka end a name there.
            let has_nul = text[name..].contains('\0');
            *refusal = if spans.len() == SPANS_MAX {
                Some(NotAnObject::TooLong(SPANS_MAX))
            } else {
                has_nul.then_some(NotAnObject::HasNul)
            };
            if refusal.is_some() {
                return Err(A::Error::custom("not headers"));
            }
            let value = text.len();
            let raw = map.next_value::<&RawValue>()?.get();
            if raw.starts_with('"') {
                serde_json::Deserializer::from_str(raw)
                    .deserialize_str(Append(text))
                    .map_err(A::Error::custom)?;
            } else {
                text.push_str(raw);
            }
            spans.push([name, value, text.len()]);
        }
    }
}

/// Appends a JSON string, unescaped.
struct Append<'t>(&'t mut String);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Append<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
#[path = "row_headers_tests.rs"]
mod tests;

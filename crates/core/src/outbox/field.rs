//! Column values in the text and binary form of Postgres, as the bytes that an event carries.
//!
//! A value that needs no decoding is borrowed from the receive buffer. One that does (a binary uuid
//! or integer, a `\x` bytea) goes into an arena whose memory is kept from row to row. Text and
//! binary form give the same bytes, so that a relay may change between them at any reconnect.

use crate::base::encoding::{hex_digits, push_unhexed};
use crate::pgoutput::message::Value;

/// Most columns of a table that a route may use.
pub(super) const FIELDS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum FieldValue<'a> {
    #[default]
    Null,
    /// Borrowed from the receive buffer or from the plan.
    Wire(&'a [u8]),
    /// A range of the arena.
    Arena { start: usize, end: usize },
}

impl<'a> FieldValue<'a> {
    #[inline]
    pub(super) fn bytes(self, arena: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            FieldValue::Null => None,
            FieldValue::Wire(bytes) => Some(bytes),
            FieldValue::Arena { start, end } => arena.get(start..end),
        }
    }

    /// Appends its bytes to the arena; false for NULL.
    #[inline]
    pub(super) fn append_to(self, arena: &mut Vec<u8>) -> bool {
        match self {
            FieldValue::Null => return false,
            FieldValue::Wire(bytes) => arena.extend_from_slice(bytes),
            FieldValue::Arena { start, end } => arena.extend_from_within(start..end),
        }
        true
    }

    /// The same value in the arena.
    pub(super) fn copied_to(self, arena: &mut Vec<u8>) -> FieldValue<'static> {
        let start = arena.len();
        match self.append_to(arena) {
            true => FieldValue::since(start, arena),
            false => FieldValue::Null,
        }
    }

    /// The bytes that were appended to the arena since `start`.
    #[inline]
    pub(super) fn since(start: usize, arena: &[u8]) -> FieldValue<'static> {
        FieldValue::Arena { start, end: arena.len() }
    }
}

/// How the values of a column are written in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JsonForm {
    #[default]
    Text,
    /// They are JSON: a number, a boolean, or a document.
    Json,
    Base64,
}

/// How the values of a column are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    /// The binary form is the text, too.
    Text,
    Uuid,
    Jsonb,
    Bytea,
    Int2,
    Int4,
    Int8,
    Bool,
    /// Only the text form is read.
    Other,
}

/// The built-in types whose values are read in a form of their own: name, object id, and how the
/// values are decoded and written in JSON.
const BUILT_IN: [(&str, u32, FieldType, JsonForm); 12] = [
    ("bool", 16, FieldType::Bool, JsonForm::Json),
    ("bytea", 17, FieldType::Bytea, JsonForm::Base64),
    ("name", 19, FieldType::Text, JsonForm::Text),
    ("int8", 20, FieldType::Int8, JsonForm::Json),
    ("int2", 21, FieldType::Int2, JsonForm::Json),
    ("int4", 23, FieldType::Int4, JsonForm::Json),
    ("text", 25, FieldType::Text, JsonForm::Text),
    ("json", 114, FieldType::Text, JsonForm::Json),
    ("bpchar", 1042, FieldType::Text, JsonForm::Text),
    ("varchar", 1043, FieldType::Text, JsonForm::Text),
    ("uuid", 2950, FieldType::Uuid, JsonForm::Text),
    ("jsonb", 3802, FieldType::Jsonb, JsonForm::Json),
];

/// The object id of one of these types. Postgres names the base type of a domain, and sends an empty
/// text for `pg_catalog`.
pub(super) fn built_in(schema: &str, name: &str) -> Option<u32> {
    let mut known = BUILT_IN.iter().filter(|_| schema.is_empty());
    known.find(|(known, ..)| *known == name).map(|(_, oid, ..)| *oid)
}

/// The forms of a type. That of an extension is [`FieldType::Other`].
pub(super) fn forms_of(type_oid: u32) -> (FieldType, JsonForm) {
    let known = BUILT_IN.iter().find(|(_, oid, ..)| *oid == type_oid);
    known.map_or((FieldType::Other, JsonForm::Text), |(.., field, json)| (*field, *json))
}

impl FieldType {
    /// Reads one value. `Err` names what was expected.
    #[inline]
    pub(super) fn read<'a>(
        self,
        value: Value<'a>,
        arena: &mut Vec<u8>,
    ) -> Result<FieldValue<'a>, &'static str> {
        match (value, self) {
            (Value::Null, _) => Ok(FieldValue::Null),
            (Value::Unchanged, _) => Err("a value (an unchanged TOAST value was sent instead)"),
            (Value::Binary(bytes), FieldType::Text | FieldType::Bytea) => {
                Ok(FieldValue::Wire(bytes))
            }
            (Value::Binary(bytes), FieldType::Uuid) => read_uuid(bytes, arena),
            (Value::Binary([1, json @ ..]), FieldType::Jsonb) => Ok(FieldValue::Wire(json)),
            (Value::Binary(_), FieldType::Jsonb) => Err("jsonb of version 1"),
            (Value::Text(text), FieldType::Bytea) => read_bytea(text, arena),
            (Value::Binary([0]) | Value::Text(b"f"), FieldType::Bool) => {
                Ok(FieldValue::Wire(b"false"))
            }
            (Value::Binary([1]) | Value::Text(b"t"), FieldType::Bool) => {
                Ok(FieldValue::Wire(b"true"))
            }
            (_, FieldType::Bool) => Err("a boolean"),
            (Value::Text(text), _) => Ok(FieldValue::Wire(text)),
            (Value::Binary(bytes), FieldType::Int2) => {
                read_integer(bytes.try_into().map(i16::from_be_bytes), arena)
            }
            (Value::Binary(bytes), FieldType::Int4) => {
                read_integer(bytes.try_into().map(i32::from_be_bytes), arena)
            }
            (Value::Binary(bytes), FieldType::Int8) => {
                read_integer(bytes.try_into().map(i64::from_be_bytes), arena)
            }
            (Value::Binary(_), FieldType::Other) => Err("a type whose binary form is read"),
        }
    }
}

/// Where the two digits of each byte of a uuid stand in its text.
const UUID_PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

#[inline]
fn read_uuid(bytes: &[u8], arena: &mut Vec<u8>) -> Result<FieldValue<'static>, &'static str> {
    let uuid: &[u8; 16] = bytes.try_into().map_err(|_| "a uuid")?;
    let mut text = [b'-'; 36];
    for (byte, at) in uuid.iter().zip(UUID_PLACES) {
        text[at..at + 2].copy_from_slice(&hex_digits(*byte));
    }
    let start = arena.len();
    arena.extend_from_slice(&text);
    Ok(FieldValue::since(start, arena))
}

fn read_integer<E>(
    number: Result<impl itoa::Integer, E>,
    arena: &mut Vec<u8>,
) -> Result<FieldValue<'static>, &'static str> {
    let number = number.map_err(|_| "an integer")?;
    let start = arena.len();
    arena.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    Ok(FieldValue::since(start, arena))
}

/// `bytea_output` may be set for the role. Its `hex` format begins with `\x`; `escape` never does,
/// because it doubles every backslash.
fn read_bytea(text: &[u8], arena: &mut Vec<u8>) -> Result<FieldValue<'static>, &'static str> {
    let start = arena.len();
    let read = match text {
        [b'\\', b'x', hex @ ..] => push_unhexed(hex, arena),
        escaped => push_unescaped(escaped, arena),
    };
    read.ok_or("bytea in hex or escape form")?;
    Ok(FieldValue::since(start, arena))
}

fn push_unescaped(mut text: &[u8], arena: &mut Vec<u8>) -> Option<()> {
    while let [first, rest @ ..] = text {
        text = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => {
                arena.push(b'\\');
                rest
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                arena.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            (b'\\', _) => return None,
            (byte, rest) => {
                arena.push(*byte);
                rest
            }
        };
    }
    Some(())
}

#[cfg(test)]
#[path = "field_tests.rs"]
mod tests;

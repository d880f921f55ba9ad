//! The value of an event whose route places columns in the envelope: a JSON object with the payload
//! and those columns, as Debezium's Outbox Event Router writes one.
//!
//! A payload of type `json` or `jsonb` stands in it as it is, without being parsed; text is a JSON
//! string, `bytea` a string of base64, as Kafka Connect's `JsonConverter` writes them.

use std::io::Write as _;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;

use super::compile::{CompiledRoute, CompiledTemplate};
use super::field::{FieldValue, JsonForm};

/// The member with the payload.
pub const PAYLOAD_MEMBER: &str = "payload";

/// Writes the envelope of a row. The error is the slot that does not hold UTF-8 text.
pub(super) fn write(
    route: &CompiledRoute,
    fields: &[FieldValue<'_>],
    arena: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), usize> {
    out.clear();
    out.push(b'{');
    push_name(PAYLOAD_MEMBER, out);
    push_slot(route, fields, route.payload, arena, out)?;
    for (name, template) in &route.envelope {
        out.push(b',');
        push_name(name, out);
        match template.slot() {
            Some(slot) => push_slot(route, fields, slot, arena, out)?,
            None => push_rendered(template, fields, arena, out),
        }
    }
    out.push(b'}');
    Ok(())
}

fn push_name(name: &str, out: &mut Vec<u8>) {
    push_string(name, out);
    out.push(b':');
}

/// The value of a slot, as its column has it; null where it is NULL.
fn push_slot(
    route: &CompiledRoute,
    fields: &[FieldValue<'_>],
    slot: usize,
    arena: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), usize> {
    let Some(bytes) = fields[slot].bytes(arena) else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    match route.json_forms[slot] {
        JsonForm::Json => out.extend_from_slice(bytes),
        // Writing to memory does not fail.
        JsonForm::Base64 => drop(write!(out, "\"{}\"", Base64Display::new(bytes, &STANDARD))),
        JsonForm::Text => push_string(std::str::from_utf8(bytes).map_err(|_| slot)?, out),
    }
    Ok(())
}

/// A template of several parts is a string; null where a column of it is NULL.
fn push_rendered(
    template: &CompiledTemplate,
    fields: &[FieldValue<'_>],
    arena: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    let rendered = match template.borrow(fields) {
        Some(constant) => constant,
        None => template.render(fields, arena).unwrap_or_default(),
    };
    match rendered.bytes(arena).map(String::from_utf8_lossy) {
        Some(text) => push_string(&text, out),
        None => out.extend_from_slice(b"null"),
    }
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    serde_json::to_writer(out, text).ok();
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;

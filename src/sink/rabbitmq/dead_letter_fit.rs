//! Dead letters as AMQP carries them: a letter must never be impossible.
//!
//! What was too much for AMQP in the event is too much in its letter. So names above 255 bytes stand in
//! headers instead, headers that the broker takes for its own are left out, and what does not fit into
//! the one frame of the headers, or into the body, is cut ([`crate::dead_letter::fit`]). What was left out is
//! named in [`DROPPED`]. Pure.

use super::message::{CONTENT_TYPE, HEADERS_BYTES_MAX, NAME_BYTES_MAX};
use crate::base::event::Outbound;
use crate::dead_letter::fit::{Room, fit, listed};
use crate::dead_letter::writer::{HEADERS_DROPPED as DROPPED, TYPE, hash_name};

/// The broker routes by the first two, and refuses them as text; it writes the third itself.
const BROKERS_OWN: [&str; 3] = ["CC", "BCC", super::log::OFFSET];

/// Hands a letter on in a shape that AMQP carries, with at most so many bytes of the value.
pub(super) fn fitted<T>(
    letter: &Outbound<'_>,
    value_bytes_max: usize,
    then: impl FnOnce(&Outbound<'_>) -> T,
) -> T {
    let carried = |(name, value): &(&str, &[u8])| {
        let is_too_long =
            name.len() > NAME_BYTES_MAX || (*name == CONTENT_TYPE && value.len() > NAME_BYTES_MAX);
        !is_too_long && !BROKERS_OWN.contains(name)
    };
    let (mut kept, dropped): (Vec<_>, Vec<_>) = letter.headers.iter().copied().partition(carried);
    let mut dropped: Vec<&str> = dropped.into_iter().map(|(name, _)| name).collect();
    let id = fitting(letter.id).map_or_else(|| hash_name(letter.id.as_bytes()), str::to_owned);
    let event_type = letter.event_type.and_then(fitting);
    if let (None, Some(long)) = (event_type, letter.event_type) {
        kept.push((TYPE, long.as_bytes()));
    }
    let content_type = letter.content_type.and_then(fitting);
    if letter.content_type.is_some() && content_type.is_none() {
        dropped.push(CONTENT_TYPE);
    }
    let dropped = listed(&dropped);
    if !dropped.is_empty() {
        kept.push((DROPPED, dropped.as_bytes()));
    }
    let letter = Outbound { id: &id, event_type, content_type, headers: &kept, ..*letter };
    let room = Room { head_bytes: HEADERS_BYTES_MAX, value_bytes: Some(value_bytes_max) };
    fit(&letter, &room, then)
}

fn fitting(name: &str) -> Option<&str> {
    Some(name).filter(|name| name.len() <= NAME_BYTES_MAX)
}

#[cfg(test)]
#[path = "dead_letter_fit_tests.rs"]
mod tests;

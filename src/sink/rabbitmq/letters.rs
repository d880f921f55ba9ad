//! Dead letters as AMQP carries them: a letter must never be impossible.
//!
//! What was too much for AMQP in the event is too much in its letter. So a letter is cut until it
//! fits: names above 255 bytes stand in headers instead, headers that the broker takes for its own
//! are left out, and so are, when all together do not fit into their one frame, those of the event,
//! from the largest on. What was left out is named in [`DROPPED`]. Pure.

use sha2::{Digest, Sha256};

use super::message::{CONTENT_TYPE, HEADERS_BYTES_MAX, KEY_HEADER, NAME_BYTES_MAX, framed_bytes};
use crate::letter::{HEADERS_DROPPED as DROPPED, PREFIX};
use crate::message::Outbound;

/// The event's type, where it is too long for the property.
pub(super) const TYPE: &str = "dlq-type";
/// Most bytes of one of our own headers: all of them fit into a frame.
const OWN_BYTES_MAX: usize = 2000;
/// The broker routes by the first two, and refuses them as text; it writes the third itself.
const BROKERS_OWN: [&str; 3] = ["CC", "BCC", super::log::OFFSET];

/// Hands a letter on in a shape that AMQP carries.
pub(super) fn fitted<T>(letter: &Outbound<'_>, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
    let is_own = |name: &str| name.starts_with(PREFIX);
    let carried = |(name, value): &(&str, &[u8])| {
        let is_too_long =
            name.len() > NAME_BYTES_MAX || (*name == CONTENT_TYPE && value.len() > NAME_BYTES_MAX);
        !is_too_long && !BROKERS_OWN.contains(name)
    };
    let (kept, dropped): (Vec<_>, Vec<_>) = letter.headers.iter().copied().partition(carried);
    let mut dropped: Vec<&str> = dropped.into_iter().map(|(name, _)| name).collect();
    let mut kept: Vec<(&str, &[u8])> = kept
        .into_iter()
        .map(|(name, value)| (name, if is_own(name) { cut(value) } else { value }))
        .collect();
    let id = fitting(letter.id).map_or_else(|| hashed(letter.id), str::to_owned);
    let event_type = letter.event_type.and_then(fitting);
    if let (None, Some(long)) = (event_type, letter.event_type) {
        kept.push((TYPE, cut(long.as_bytes())));
    }
    let content_type = letter.content_type.and_then(fitting);
    if letter.content_type.is_some() && content_type.is_none() {
        dropped.push(CONTENT_TYPE);
    }
    let mut key = letter.key;
    // Room for the list of what is dropped is kept in any case.
    let most = HEADERS_BYTES_MAX - framed_bytes(DROPPED, &[0; OWN_BYTES_MAX]);
    let all = |kept: &[(&str, &[u8])], key: Option<&[u8]>| {
        let headers = kept.iter().map(|(name, value)| framed_bytes(name, value)).sum::<usize>();
        headers + key.map_or(0, |key| framed_bytes(KEY_HEADER, key))
    };
    while all(&kept, key) > most {
        let theirs = kept.iter().enumerate().filter(|(_, (name, _))| !is_own(name));
        let largest = theirs.max_by_key(|(_, (name, value))| framed_bytes(name, value));
        match (largest.map(|(at, _)| at), key.take()) {
            (Some(at), untouched) => {
                dropped.push(kept.remove(at).0);
                key = untouched;
            }
            (None, Some(_)) => dropped.push(KEY_HEADER),
            // Our own fit, unless the event had some of that name; the last ones are ours.
            (None, None) => dropped.push(kept.remove(0).0),
        }
    }
    let dropped = dropped.join(", ");
    if !dropped.is_empty() {
        kept.push((DROPPED, cut(dropped.as_bytes())));
    }
    then(&Outbound { id: &id, key, event_type, content_type, headers: &kept, ..*letter })
}

fn fitting(name: &str) -> Option<&str> {
    Some(name).filter(|name| name.len() <= NAME_BYTES_MAX)
}

/// Stands for an id that is too long; the id itself is a header.
fn hashed(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Not in the middle of a character.
fn cut(text: &[u8]) -> &[u8] {
    if text.len() <= OWN_BYTES_MAX {
        return text;
    }
    let is_boundary = |at: &usize| text[*at] & 0xC0 != 0x80;
    let end = (0..=OWN_BYTES_MAX).rev().find(is_boundary).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
#[path = "letters_tests.rs"]
mod tests;

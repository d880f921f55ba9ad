//! Cuts a dead letter that is too large for its broker; an event that was too large makes one.
//!
//! * Texts are shortened. An event id becomes its hash, so that two dead letters of one event have
//!   the same id, whatever each of them was cut to.
//! * Headers of the event are left out, the largest first, until they take half of the room or leave
//!   enough for the rest; their names are listed.
//! * Of a key that does not fit only the beginning stays.
//! * The value gets the room that is left.
//!
//! Headers give size and hash of what was cut. A dead letter that is cut a second time keeps those
//! of the first time.

use std::borrow::Cow;

use crate::base::event::Outbound;
use crate::dead_letter::writer::{
    EVENT_ID, EVENT_ID_SIZE, HEADERS_DROPPED, KEY_HEADER, KEY_SHA256, KEY_SIZE, NOTED, PREFIX,
    VALUE_SHA256, VALUE_SIZE, extend_list, hash_name, header_cost, sha256_hex,
};

/// Longest text in a dead letter that is cut; with little room less, down to the minimum.
const TEXT_BYTES_MAX: usize = 2000;
const TEXT_BYTES_MIN: usize = 80;
/// One text takes at most this part of the room.
const TEXTS: usize = 15;
/// The bytes that stay of a key that is cut.
const KEY_BYTES_KEPT: usize = 1024;
/// The headers with size and hash of key and value.
const NOTES_BYTES: usize = 320;

/// The size of one record that a broker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The bytes that the broker adds to each header.
    pub header_bytes: usize,
    /// Most bytes of headers and key, and of the value unless it has a room of its own.
    pub head_bytes: usize,
    /// Most bytes of the value, where it has a room of its own.
    pub value_bytes: Option<usize>,
}

impl Room {
    fn holds(&self, letter: &Outbound<'_>) -> bool {
        let value = letter.value.map_or(0, <[u8]>::len);
        let head = head_bytes(letter, self.header_bytes);
        match self.value_bytes {
            None => head + value <= self.head_bytes,
            Some(most) => head <= self.head_bytes && value <= most,
        }
    }

    fn cost(&self, (name, value): (&str, &[u8])) -> usize {
        header_cost(name, value, self.header_bytes)
    }
}

/// The most bytes that headers and key of a record take at a broker that adds so many to each header.
pub fn head_bytes(record: &Outbound<'_>, header_bytes: usize) -> usize {
    let key = record.key.map(|key| (KEY_HEADER, key));
    let headers = record.headers.iter().copied().chain(key);
    headers.map(|(name, value)| header_cost(name, value, header_bytes)).sum()
}

/// Passes the dead letter to `then`, cut to the room. Nothing smaller than 4,096 bytes can be made
/// of it, so with less room it may not fit.
pub fn fit<T>(letter: &Outbound<'_>, room: &Room, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
    if room.holds(letter) {
        return then(letter);
    }
    let key_cost = |key: &[u8]| room.cost((KEY_HEADER, key));
    let text_max = (room.head_bytes / TEXTS).clamp(TEXT_BYTES_MIN, TEXT_BYTES_MAX);
    let (own, mut theirs): (Vec<_>, Vec<_>) =
        letter.headers.iter().copied().partition(|(name, _)| name.starts_with(PREFIX));
    let mut own = OwnHeaders::shortened(own, text_max);
    // The list of headers that are left out may grow to its full length.
    let listed = room.cost((HEADERS_DROPPED, &[])) + text_max;
    let mut left = room.head_bytes.saturating_sub(own.bytes(room) + listed + NOTES_BYTES);
    let value = letter.value.unwrap_or_default();
    let value_here = if room.value_bytes.is_some() { 0 } else { value.len() };
    let key_bytes = letter.key.map_or(0, key_cost);
    let share = (left / 2).max(left.saturating_sub(key_bytes + value_here));
    let dropped = drop_largest(&mut theirs, share, room);
    left = left.saturating_sub(theirs.iter().map(|header| room.cost(*header)).sum());
    let share = (left / 2).max(left.saturating_sub(value_here));
    let key = letter.key.map(|key| {
        if key_cost(key) <= share {
            return key;
        }
        own.note(KEY_SIZE, KEY_SHA256, key);
        text_cut(key, KEY_BYTES_KEPT.min(share.saturating_sub(key_cost(b""))))
    });
    left = left.saturating_sub(key.map_or(0, key_cost));
    let most = room.value_bytes.unwrap_or(left);
    if value.len() > most {
        own.note(VALUE_SIZE, VALUE_SHA256, value);
    }
    own.list(&dropped, text_max);
    let ours = own.0.iter().map(|(name, value)| (*name, &**value));
    let headers: Vec<(&str, &[u8])> = theirs.into_iter().chain(ours).collect();
    let value = letter.value.map(|value| &value[..value.len().min(most)]);
    then(&Outbound { key, value, headers: &headers, ..*letter })
}

/// Leaves headers out, the largest first, until the others take at most `most` bytes; returns the
/// names of those left out.
fn drop_largest<'a>(
    headers: &mut Vec<(&'a str, &'a [u8])>,
    most: usize,
    room: &Room,
) -> Vec<&'a str> {
    let sizes = headers.iter().enumerate().map(|(at, header)| (room.cost(*header), at));
    let mut by_size: Vec<(usize, usize)> = sizes.collect();
    by_size.sort_unstable();
    let mut total: usize = by_size.iter().map(|(size, _)| size).sum();
    let (mut gone, mut names) = (vec![false; headers.len()], Vec::new());
    while total > most
        && let Some((size, at)) = by_size.pop()
    {
        total -= size;
        gone[at] = true;
        names.push(headers[at].0);
    }
    let mut gone = gone.into_iter();
    headers.retain(|_| !gone.next().unwrap_or_default());
    names
}

/// The headers of [`super::writer`].
struct OwnHeaders<'a>(Vec<(&'a str, Cow<'a, [u8]>)>);

impl<'a> OwnHeaders<'a> {
    fn shortened(headers: Vec<(&'a str, &'a [u8])>, text_max: usize) -> OwnHeaders<'a> {
        let short = headers.iter().map(|(name, whole)| {
            let short = match *name {
                EVENT_ID if whole.len() > text_max => hash_name(whole).into_bytes().into(),
                _ => text_cut(whole, text_max).into(),
            };
            (*name, short)
        });
        let mut own = OwnHeaders(short.collect());
        for (name, whole) in headers.into_iter().filter(|(_, whole)| whole.len() > text_max) {
            if name == EVENT_ID {
                own.add(EVENT_ID_SIZE, whole.len().to_string());
            } else if let Some((_, size, sha256)) = NOTED.iter().find(|(noted, ..)| *noted == name)
            {
                own.note(size, sha256, whole);
            }
        }
        own
    }

    fn bytes(&self, room: &Room) -> usize {
        self.0.iter().map(|(name, value)| room.cost((name, value))).sum()
    }

    /// A header of that name that is there already describes what was there first, and stays.
    fn add(&mut self, name: &'static str, text: String) {
        if !self.0.iter().any(|(known, _)| *known == name) {
            self.0.push((name, text.into_bytes().into()));
        }
    }

    fn note(&mut self, size: &'static str, sha256: &'static str, whole: &[u8]) {
        self.add(size, whole.len().to_string());
        self.add(sha256, sha256_hex(whole));
    }

    /// Adds to the list of headers that were left out.
    fn list(&mut self, dropped: &[&str], text_max: usize) {
        if dropped.is_empty() {
            return;
        }
        let known = self.0.iter().position(|(name, _)| *name == HEADERS_DROPPED);
        let before = known.map(|at| self.0.remove(at).1).unwrap_or_default();
        let list = extend_list(&String::from_utf8_lossy(&before), dropped, text_max);
        self.0.push((HEADERS_DROPPED, list.into_bytes().into()));
    }
}

/// The beginning of a text, cut between two characters; what is not UTF-8 is cut anywhere.
fn text_cut(text: &[u8], most: usize) -> &[u8] {
    if text.len() <= most {
        return text;
    }
    let is_boundary = |at: &usize| text[*at] & 0xC0 != 0x80;
    let end = (most.saturating_sub(3)..=most).rev().find(is_boundary).unwrap_or(most);
    &text[..end]
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;

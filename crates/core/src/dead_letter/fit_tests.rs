use proptest::prelude::*;

use super::*;
use crate::base::event::Position;
use crate::base::lsn::Lsn;
use crate::dead_letter::record::LogEntry;
use crate::dead_letter::writer::{
    AMQP_HEADER_BYTES, DeadLetterCause, ERROR_MSG, EVENT_ID, KAFKA_HEADER_BYTES, KeyHash,
    ORIGINAL_TOPIC, RELAY, hash_in, named_by_hash,
};
use crate::testing::{dead_letter_cause, dead_letter_writer, log_entry};

/// Any letter can be cut to this.
const ROOM_BYTES_MIN: usize = 4096;

fn compose(event: &Outbound<'_>, reason: &str) -> LogEntry {
    let cause = DeadLetterCause {
        class: "kafka.message-size-too-large".to_owned(),
        reason: reason.to_owned(),
        position: Position { commit_lsn: Lsn::from_wire(u64::MAX), ordinal: u64::MAX },
        incomplete: true,
        ..dead_letter_cause()
    };
    dead_letter_writer(900 << 10).compose(event, &cause, log_entry)
}

impl LogEntry {
    fn fit(&self, room: &Room) -> LogEntry {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
        let (key, value) = (self.key.as_deref(), self.value.as_deref());
        let commit_unix_us = self.written_unix_us;
        let letter = Outbound { key, value, headers: &headers, commit_unix_us, ..event() };
        fit(&letter, room, log_entry)
    }

    /// Counts the bytes of headers and key, and those of the value.
    fn bytes(&self, header_bytes: usize) -> (usize, usize) {
        let cost = |(name, value): (&str, &[u8])| header_cost(name, value, header_bytes);
        let headers = self.headers.iter().map(|(name, value)| cost((name, value)));
        let key = self.key.as_deref().map_or(0, |key| cost((KEY_HEADER, key)));
        (headers.sum::<usize>() + key, self.value.as_ref().map_or(0, Vec::len))
    }

    fn text(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| std::str::from_utf8(value).unwrap())
    }
}

fn event() -> Outbound<'static> {
    Outbound {
        topic: "orders",
        key: Some(b"42"),
        value: Some(b"{}"),
        id: "e1",
        headers: &[("id", b"e1")],
        partition: Some(7),
        ..Outbound::default()
    }
}

fn letter(event: &Outbound<'_>) -> LogEntry {
    compose(event, "too large")
}

const MB: Room =
    Room { header_bytes: KAFKA_HEADER_BYTES, head_bytes: 1_000_000, value_bytes: None };

#[test]
fn what_fits_is_not_touched() {
    let value = vec![b'v'; 900_000];
    let whole = letter(&Outbound { value: Some(&value), ..event() });
    let (head, body) = whole.bytes(KAFKA_HEADER_BYTES);
    let filled = Room { head_bytes: head + body, ..MB };
    let both_filled = Room { head_bytes: head, value_bytes: Some(body), ..MB };
    for room in [MB, filled, both_filled] {
        assert!(whole.fit(&room) == whole, "{room:?}");
    }
}

#[test]
fn of_a_letter_that_is_cut_the_parts_that_fill_their_room_stay_whole() {
    let (text, large) = ("x".repeat(TEXT_BYTES_MAX), vec![b'k'; 1_100_000]);
    let whole = letter(&Outbound { id: &text, topic: &text, key: Some(&large), ..event() });
    let cut = whole.fit(&Room { value_bytes: Some(2), ..MB });
    assert_eq!(cut.text(KEY_SIZE), Some("1100000"));
    assert_eq!((cut.text(EVENT_ID), cut.text(ORIGINAL_TOPIC)), (Some(&*text), Some(&*text)));
    for size in [EVENT_ID_SIZE, "dlq-original-topic-size", VALUE_SIZE] {
        assert_eq!(cut.text(size), None, "{size}");
    }
}

#[test]
fn whatever_is_too_large_is_cut_and_the_rest_stays() {
    let large = "ä".repeat(550_000);
    let bytes = large.as_bytes();
    // A key.
    let cut = letter(&Outbound { key: Some(bytes), ..event() }).fit(&MB);
    assert_eq!(cut.key.as_deref(), Some(&bytes[..1024]));
    assert_eq!(
        (cut.text(KEY_SIZE), cut.text(KEY_SHA256)),
        (Some("1100000"), Some(&*sha256_hex(bytes)))
    );
    assert_eq!((cut.value.as_deref(), cut.text("id")), (Some(&b"{}"[..]), Some("e1")));
    // An id.
    let headers = [("id", bytes), ("small", b"kept")];
    let cut = letter(&Outbound { id: &large, headers: &headers, ..event() }).fit(&MB);
    assert_eq!(cut.text(EVENT_ID).and_then(hash_in), Some(&*sha256_hex(bytes)));
    assert_eq!((cut.text(EVENT_ID_SIZE), cut.text(HEADERS_DROPPED)), (Some("1100000"), Some("id")));
    assert_eq!(cut.text("small"), Some("kept"));
    // A topic.
    let cut = letter(&Outbound { topic: &large, ..event() }).fit(&MB);
    assert_eq!(cut.text(ORIGINAL_TOPIC).map(str::len), Some(2_000));
    assert_eq!(cut.text("dlq-original-topic-size"), Some("1100000"));
    assert_eq!(cut.text("dlq-original-topic-sha256"), Some(&*sha256_hex(bytes)));
    // A name.
    let cut = letter(&Outbound { headers: &[(&large, b"v"), ("h", bytes)], ..event() }).fit(&MB);
    assert_eq!(cut.text(HEADERS_DROPPED), Some(&*format!("h, {}", "ä".repeat(150))));
    // A message.
    let cut = compose(&event(), &large).fit(&MB);
    assert_eq!(
        (cut.text(ERROR_MSG).map(str::len), cut.text(RELAY)),
        (Some(2_000), Some("walrelay"))
    );
}

#[test]
fn key_and_value_that_are_too_large_together_leave_as_much_as_fits() {
    let (key, value) = (vec![b'k'; 500_000], vec![b'v'; 700_000]);
    let whole = letter(&Outbound { key: Some(&key), value: Some(&value), ..event() });
    let cut = whole.fit(&MB);
    // Half of the room is for the key, and it needs a little more.
    assert_eq!(
        (cut.key.map(|key| key.len()), cut.value.map(|it| it.len())),
        (Some(1024), Some(700_000))
    );
    let key = vec![b'k'; 400_000];
    let whole = letter(&Outbound { key: Some(&key), value: Some(&value), ..event() });
    let cut = whole.fit(&MB);
    assert_eq!(cut.key.as_deref(), Some(&key[..]));
    assert!(cut.value.as_ref().is_some_and(|value| value.len() > 590_000));
    assert_eq!(cut.text(crate::dead_letter::writer::VALUE_SIZE), Some("700000"));
}

#[test]
fn what_is_cut_again_tells_of_what_was_there_first() {
    let large = vec![b'x'; 1_100_000];
    let headers = [("a", &large[..]), ("b", &large[..30_000])];
    let whole =
        letter(&Outbound { key: Some(&large), value: Some(&large), headers: &headers, ..event() });
    let once = whole.fit(&MB);
    assert_eq!(once.text(HEADERS_DROPPED), Some("a"));
    let twice = once.fit(&Room { head_bytes: 20_000, ..MB });
    assert_eq!(twice.text(HEADERS_DROPPED), Some("a, b"));
    for name in [KEY_SIZE, VALUE_SIZE] {
        assert_eq!(twice.text(name), Some("1100000"));
    }
    for name in [KEY_SHA256, VALUE_SHA256] {
        assert_eq!(twice.text(name), Some(&*sha256_hex(&large)));
    }
}

#[test]
fn a_key_is_the_same_whole_and_cut() {
    let key = vec![b'k'; 300_000];
    let id = KeyHash::of(&key);
    assert_eq!(KeyHash::of_sha256(&sha256_hex(&key)), Some(id));
    assert_ne!(KeyHash::of(&key[..1024]), id);
    for none in ["", "ab", &"g".repeat(64), &"ü".repeat(32)] {
        assert_eq!(
            (KeyHash::of_sha256(none), hash_in(&named_by_hash(none))),
            (None, None),
            "{none}"
        );
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![Just(0_usize), 1..60_usize, 200..3_000_usize, 9_000..60_000_usize];
    (any::<u8>(), lengths).prop_map(|(byte, length)| vec![byte; length])
}

fn text() -> impl Strategy<Value = String> {
    let lengths = prop_oneof![Just(0_usize), 1..40_usize, 80..1_500_usize, 9_000..20_000_usize];
    (any::<char>(), lengths).prop_map(|(c, length)| c.to_string().repeat(length))
}

proptest! {
    #[test]
    fn any_letter_fits(
        (key, value) in (proptest::option::of(bytes()), proptest::option::of(bytes())),
        (id, topic, exchange, reason) in (text(), text(), text(), text()),
        headers in proptest::collection::vec((text(), bytes()), 0..40),
        header_bytes in proptest::sample::select(vec![KAFKA_HEADER_BYTES, AMQP_HEADER_BYTES]),
        head_bytes in ROOM_BYTES_MIN..80_000,
        value_bytes in proptest::option::of(0..80_000_usize),
    ) {
        let headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let (key, value) = (key.as_deref(), value.as_deref());
        let event = Outbound {
            id: &id, topic: &topic, exchange: &exchange, key, value, headers: &headers, ..event()
        };
        let whole = compose(&event, &reason);
        let room = Room { header_bytes, head_bytes, value_bytes };
        let cut = whole.fit(&room);
        let (head, body) = cut.bytes(header_bytes);
        match value_bytes {
            None => prop_assert!(head + body <= head_bytes, "{head} + {body} > {head_bytes}"),
            Some(most) => prop_assert!(head <= head_bytes && body <= most, "{head}, {body}"),
        }
        // What is not whole says so, and a letter that fits is not cut once more.
        prop_assert_eq!(cut.key != whole.key, cut.text(KEY_SIZE).is_some());
        prop_assert_eq!(cut.value != whole.value, cut.text(VALUE_SIZE).is_some());
        prop_assert_eq!(cut.key.is_some(), whole.key.is_some());
        prop_assert_eq!(cut.fit(&room), cut.clone());
        let least = Room { head_bytes: ROOM_BYTES_MIN, value_bytes: Some(0), ..room };
        let (head, body) = cut.fit(&least).bytes(header_bytes);
        prop_assert!(head <= ROOM_BYTES_MIN && body == 0);
    }
}

use super::*;
use crate::dead_letter::writer::DeadLetterCause;
use crate::sink::kafka::fault::{LETTER_BYTES_MIN, ToolArguments};
use crate::testing::{dead_letter_cause, dead_letter_writer};

fn record<'a>(value: &'a [u8]) -> Outbound<'a> {
    const HEADERS: &[(&str, &[u8])] = &[("dlq-event-id", b"e1")];
    let (topic, key, value) = ("outbox.dlq", Some(&b"k"[..]), Some(value));
    Outbound { topic, key, value, id: "e1", headers: HEADERS, ..Outbound::default() }
}

fn event(topic: &'static str, value: &'static [u8]) -> Outbound<'static> {
    Outbound { topic, ..record(value) }
}

fn value_bytes(record: &Record) -> usize {
    record.value.as_ref().map_or(0, Vec::len)
}

#[test]
fn a_letter_that_is_refused_is_cut_until_nothing_is_left_to_cut() {
    let value = vec![b'v'; 2_000_000];
    let limit = RecordLimit::new(None);
    let mut letter = limit.fit_dead_letter(&record(&value), Some(7));
    let first = value_bytes(&letter);
    assert!((990_000..1_000_000).contains(&first), "{first}");
    assert!(limit.cut_dead_letter(Code::InvalidRecord, &letter).is_none());
    let mut rounds = 0;
    while let Some(less) = limit.cut_dead_letter(Code::MessageSizeTooLarge, &letter) {
        assert!(value_bytes(&less) <= value_bytes(&letter) / 2, "{}", value_bytes(&less));
        assert_eq!((less.lane, less.is_dead_letter), (Some(7), true));
        (letter, rounds) = (less, rounds + 1);
    }
    assert_eq!(value_bytes(&letter), 0);
    assert!(rounds < 20, "{rounds}");
}

#[test]
fn every_dead_letter_fits_into_a_topic_of_the_least_size_that_is_asked_for() {
    // GIVEN an event of which each part is large
    let large = "x".repeat(1_000_000);
    let bytes = large.as_bytes();
    let headers = [("id", bytes), (&*large, bytes)];
    let (topic, key, value) = (&*large, Some(bytes), Some(bytes));
    let event =
        Outbound { topic, key, value, id: &large, headers: &headers, ..Outbound::default() };
    let cause = DeadLetterCause { reason: large.clone(), incomplete: true, ..dead_letter_cause() };
    let limit = RecordLimit::new(None);
    let letter_in = |bytes_max| {
        dead_letter_writer(900 << 10).compose(&event, &cause, |letter| {
            limit.learn(letter.topic, bytes_max);
            limit.fit_dead_letter(letter, None)
        })
    };
    assert!(letter_in(LETTER_BYTES_MIN).with_outbound(framed_bytes) <= LETTER_BYTES_MIN);
    // THEN the failure of one that is refused nevertheless names that size, and that of an event does not
    let letter = letter_in(1_000);
    let mend =
        |record: &Record| record.failure(Code::MessageSizeTooLarge, &ToolArguments::default()).mend;
    let told = mend(&letter);
    assert!(told.contains("at least 4300 bytes: kafka-configs.sh"), "{told}");
    assert!(!mend(&Record { is_dead_letter: false, ..letter }).contains("4300"));
}

#[test]
fn an_event_has_room_until_the_cluster_or_a_refusal_says_otherwise() {
    let (limit, small) = (RecordLimit::new(None), event("orders", &[b'v'; 500]));
    let bytes = framed_bytes(&small);
    assert!(limit.has_room_for(&small));
    // A batch of several was refused: one of them alone may be too large already.
    limit.refused("orders", 2 * bytes - 1);
    assert!(!limit.has_room_for(&small));
    limit.learn("orders", bytes);
    assert!(limit.has_room_for(&small));
    limit.learn("orders", bytes - 1);
    assert!(!limit.has_room_for(&small));
    assert!(limit.has_room_for(&event("others", &[b'v'; 500])));
    assert!(!limit.has_room_for(&record(&[b'v'; 1_000_000])));
}

#[test]
fn an_event_is_never_cut() {
    let event = Record::copy(&record(b"value"), None);
    assert!(RecordLimit::new(None).cut_dead_letter(Code::MessageSizeTooLarge, &event).is_none());
}

#[test]
fn the_least_of_all_limits_counts() {
    let limit = RecordLimit::new(Some("500000"));
    let value = vec![b'v'; 2_000_000];
    let fits = |limit: &RecordLimit| value_bytes(&limit.fit_dead_letter(&record(&value), None));
    limit.learn("outbox.dlq", 1_048_588);
    assert!((490_000..500_000).contains(&fits(&limit)), "{}", fits(&limit));
    limit.learn("outbox.dlq", 20_000);
    assert!((15_000..20_000).contains(&fits(&limit)), "{}", fits(&limit));
}

#[test]
fn what_the_cluster_says_is_believed_if_it_explains_the_refusal() {
    let limit = RecordLimit::new(None);
    assert_eq!((limit.batch_bytes_max(), limit.refusing().len()), (1_000_000, 0));
    // Of a topic that has refused nothing it changes no batch.
    limit.learn("outbox.dlq", 10_000);
    assert_eq!(limit.batch_bytes_max(), 1_000_000);
    limit.refused("small", 600_000);
    assert_eq!(limit.batch_bytes_max(), 300_000);
    limit.learn("small", 20_000);
    assert_eq!((limit.batch_bytes_max(), limit.refusing()), (20_000, vec!["small".to_owned()]));
    // It is refused all the same, and the cluster says the same as before.
    limit.refused("small", 20_000);
    limit.learn("small", 20_000);
    assert_eq!(limit.batch_bytes_max(), 10_000);
    limit.learn("small", 5_000);
    assert_eq!(limit.batch_bytes_max(), 5_000);
}

#[test]
fn an_event_is_measured_by_what_its_own_topic_has_refused() {
    let (small, large) = (vec![b'v'; 8_000].leak(), vec![b'v'; 48_000].leak());
    let limit = RecordLimit::new(None);
    assert!(!limit.is_exceeded(&event("a", large)));
    limit.refused("a", 40_000);
    limit.refused("b", 160_000);
    assert_eq!(limit.batch_bytes_max(), 20_000);
    assert!(limit.is_exceeded(&event("a", large)));
    assert!(!limit.is_exceeded(&event("a", small)));
    assert!(!limit.is_exceeded(&event("b", large)));
    assert!(!limit.is_exceeded(&event("c", large)));
}

#[test]
fn a_refusal_always_leaves_less_for_the_next_batch() {
    let limit = RecordLimit::new(None);
    for _ in 0..20 {
        let before = limit.batch_bytes_max();
        limit.refused("a", before);
        assert!(limit.batch_bytes_max() <= (before / 2).max(1));
    }
    assert_eq!(limit.batch_bytes_max(), 1);
}

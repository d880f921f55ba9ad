use super::*;

fn record<'a>(value: &'a [u8]) -> Outbound<'a> {
    Outbound {
        exchange: "",
        topic: "outbox.dlq",
        key: Some(b"k"),
        value: Some(value),
        id: "e1",
        event_type: None,
        content_type: None,
        headers: &[("dlq-event-id", b"e1")],
        commit_unix_us: 0,
        partition: None,
    }
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
fn an_event_is_never_cut() {
    let event = Record::copy(&record(b"value"), None);
    assert!(RecordLimit::new(None).cut_dead_letter(Code::MessageSizeTooLarge, &event).is_none());
}

#[test]
fn the_least_of_all_limits_counts_and_clones_share_it() {
    let limit = RecordLimit::new(Some("500000"));
    let again = limit.clone();
    let value = vec![b'v'; 2_000_000];
    let fits = |limit: &RecordLimit| value_bytes(&limit.fit_dead_letter(&record(&value), None));
    again.learn(1_048_588);
    assert!((490_000..500_000).contains(&fits(&limit)), "{}", fits(&limit));
    again.learn(20_000);
    assert!((15_000..20_000).contains(&fits(&limit)), "{}", fits(&limit));
}

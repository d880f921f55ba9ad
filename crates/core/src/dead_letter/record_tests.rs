use super::super::parse::parse;
use super::*;
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::dead_letter::fit::{Room, fit};
use crate::dead_letter::writer::KAFKA_HEADER_BYTES;
use crate::testing::{dead_letter_cause, dead_letter_writer, log_entry};

const HEADERS: &[(&str, &[u8])] = &[("id", b"e1"), ("bytes", &[0xff, 0])];

fn event() -> Outbound<'static> {
    Outbound {
        exchange: "outbox.events",
        topic: "orders",
        key: Some(b"42"),
        value: Some(b"payload"),
        id: "e1",
        event_type: Some("Placed"),
        content_type: Some("application/json"),
        headers: HEADERS,
        commit_unix_us: 1_000_000,
        partition: Some(7),
    }
}

fn entry(record: &Outbound<'_>, partition: i32, offset: i64) -> LogEntry {
    LogEntry { position: PartitionOffset { partition, offset }, ..log_entry(record) }
}

fn letter_of(event: &Outbound<'_>, value_bytes_max: usize) -> DeadLetter {
    let entry =
        dead_letter_writer(value_bytes_max)
            .compose(event, &dead_letter_cause(), |letter| entry(letter, 2, 17));
    match parse(entry) {
        LogRecord::DeadLetter(letter) => *letter,
        other => panic!("{other:?}"),
    }
}

fn letters() -> DeadLetterAddress {
    DeadLetterAddress { exchange: "dlx".to_owned(), topic: "dlq".to_owned() }
}

#[test]
fn what_was_written_is_read_again() {
    let letter = letter_of(&event(), 100);
    assert_eq!(letter.position, PartitionOffset { partition: 2, offset: 17 });
    let names = [&letter.event_id, &letter.topic, &letter.exchange, &letter.lsn, &letter.relay];
    assert_eq!(names, ["e1", "orders", "outbox.events", "16/B374D848", "walrelay"]);
    assert_eq!((letter.error_class.as_str(), letter.attempts), ("kafka.unknown-topic", 5));
    assert_eq!(letter.error_msg, "no such topic");
    let times = [letter.commit_unix_us, letter.first_failed_unix_us, letter.failed_unix_us];
    assert_eq!(times, [1_000_000, 2_000_000, 3_000_000]);
    assert_eq!((letter.partition, letter.replays), (Some(7), 0));
    let unfit = letter.not_replayable(&[&letters()]);
    assert_eq!((letter.parks_key, letter.uncut.is_none(), unfit), (true, true, None));
}

#[test]
fn the_event_is_as_it_was_and_says_that_it_is_a_replay() {
    letter_of(&event(), 100).event(2, None, |again| {
        let was = event();
        assert_eq!((again.exchange, again.topic), (was.exchange, was.topic));
        assert_eq!((again.key, again.value, again.id), (was.key, was.value, was.id));
        assert_eq!(again.event_type, was.event_type);
        assert_eq!(again.content_type, was.content_type);
        assert_eq!((again.commit_unix_us, again.partition), (was.commit_unix_us, was.partition));
        assert_eq!(again.headers[..2], *HEADERS);
        assert_eq!(again.headers[2..], [("dlq-replay-count", &b"2"[..])]);
    });
}

#[test]
fn a_letter_that_is_less_than_its_event_cannot_be_replayed() {
    let cut = letter_of(&event(), 3);
    assert_eq!(cut.not_replayable(&[&letters()]), Some(NotReplayable::Cut));
    assert_eq!(cut.uncut.map(|cut| (cut.size_bytes, cut.sha256.len())), Some((7, 64)));
    let entry = dead_letter_writer(100).compose(&event(), &dead_letter_cause(), |letter| {
        let dropped = (writer::HEADERS_DROPPED, &b"trace"[..]);
        let headers: Vec<_> = letter.headers.iter().copied().chain([dropped]).collect();
        entry(&Outbound { headers: &headers, ..*letter }, 0, 0)
    });
    let LogRecord::DeadLetter(mutilated) = parse(entry) else { panic!("it is a letter") };
    assert_eq!(mutilated.not_replayable(&[&letters()]), Some(NotReplayable::Incomplete));
    let nowhere = letter_of(&Outbound { exchange: "", topic: "", ..event() }, 100);
    assert_eq!(nowhere.not_replayable(&[&letters()]), Some(NotReplayable::Unrouted));
    // An exchange needs no routing key.
    let fanout = letter_of(&Outbound { topic: "", ..event() }, 100);
    assert_eq!(fanout.not_replayable(&[&letters()]), None);
    let row = DeadLetter { incomplete: true, ..fanout };
    assert_eq!(row.not_replayable(&[&letters()]), Some(NotReplayable::Incomplete));
    let misrouted = letter_of(&Outbound { exchange: "dlx", ..event() }, 100);
    assert_eq!(misrouted.not_replayable(&[&letters()]), Some(NotReplayable::Misrouted));
    // In RabbitMQ a replay has the id of the dead letter.
    let nameless = DeadLetter {
        error_class: writer::CLASS_NO_ID.to_owned(),
        ..letter_of(&Outbound { id: "", ..event() }, 100)
    };
    assert_eq!(nameless.not_replayable(&[&letters()]), None);
    let nameless = DeadLetter { exchange: String::new(), ..nameless };
    assert_eq!(nameless.not_replayable(&[&letters()]), Some(NotReplayable::Nameless));
}

/// The letter of the event, cut to fit into so many bytes.
fn cut_letter(event: &Outbound<'_>, head_bytes: usize) -> DeadLetter {
    let room = Room { header_bytes: KAFKA_HEADER_BYTES, head_bytes, value_bytes: None };
    let entry = dead_letter_writer(1 << 20).compose(event, &dead_letter_cause(), |letter| {
        fit(letter, &room, |letter| entry(letter, 2, 17))
    });
    match parse(entry) {
        LogRecord::DeadLetter(letter) => *letter,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_letter_of_which_anything_was_cut_cannot_be_replayed_and_is_known_by_what_it_was() {
    let large = "x".repeat(100_000);
    let (small, bytes) = (50_000, large.as_bytes());
    // GIVEN a key that was cut
    let event_of_key = Outbound { key: Some(bytes), ..event() };
    let (whole, cut) = (cut_letter(&event_of_key, 1 << 20), cut_letter(&event_of_key, small));
    assert_eq!(
        (whole.not_replayable(&[&letters()]), cut.not_replayable(&[&letters()])),
        (None, Some(NotReplayable::Incomplete))
    );
    assert_eq!(
        cut.key.as_ref().and_then(|key| Some(key.uncut.as_ref()?.size_bytes)),
        Some(100_000)
    );
    assert_eq!(
        (cut.key_hash(), whole.key_hash()),
        (Some(KeyHash::of(bytes)), Some(KeyHash::of(bytes)))
    );
    let name = cut.key.as_ref().unwrap().name();
    assert_eq!(name, writer::hash_name(bytes));
    // THEN both go by that name
    for letter in [&whole, &cut] {
        let key = letter.key.as_ref().unwrap();
        let is = |word: &str| key.is_named(word);
        assert!(is(&name) && is(&large) && !is(&large[..1024]) && !is(&writer::hash_name(b"x")));
        assert!(key.is(bytes) && !key.is(&bytes[..1024]));
    }
    // THEN what releases it names the same key
    let released = cut.resolution(ResolutionKind::Released, 0, "me", 1);
    let read = released.record(&letters(), |record| parse(entry(record, 2, 18)));
    let LogRecord::Resolution(read) = read else { panic!("{read:?}") };
    assert_eq!((read.key_hash(), read.key), (cut.key_hash(), cut.key.clone()));
    // GIVEN an id that was cut THEN it is the same letter
    let event_of_id = Outbound { id: &large, ..event() };
    let (whole, cut) = (cut_letter(&event_of_id, 1 << 20), cut_letter(&event_of_id, small));
    assert_eq!((whole.event_id.as_str(), &cut.event_id), (&*large, &writer::hash_name(bytes)));
    assert_eq!(
        (whole.id(), cut.not_replayable(&[&letters()])),
        (cut.id(), Some(NotReplayable::Incomplete))
    );
    // GIVEN a topic, an exchange
    for event in [Outbound { topic: &large, ..event() }, Outbound { exchange: &large, ..event() }] {
        assert_eq!(
            cut_letter(&event, small).not_replayable(&[&letters()]),
            Some(NotReplayable::Incomplete)
        );
    }
}

#[test]
fn a_key_goes_by_its_bytes_and_by_what_is_shown_of_them() {
    let key = |bytes: &[u8]| RecordKey { bytes: bytes.to_vec(), uncut: None };
    assert!(key(b"a\xff").is_named(r"a\xff") && !key(b"a\xff").is_named("a"));
    assert!(key(b"a\n").is_named("a\n") && key(b"a\n").is_named(r"a\n"));
}

#[test]
fn a_resolution_stands_in_the_partition_of_its_letter_and_is_about_it() {
    let letter = DeadLetter { system: "7000".to_owned(), ..letter_of(&event(), 100) };
    let to = letters();
    let resolution = letter.resolution(ResolutionKind::Replayed, 2, "me@here", 9_000_000);
    let read = resolution.record(&to, |record| {
        assert_eq!((record.exchange, record.topic), ("dlx", "dlq"));
        assert_eq!((record.partition, record.value), (Some(2), None));
        parse(entry(record, 2, 18))
    });
    let LogRecord::Resolution(read) = read else { panic!("{read:?}") };
    assert_eq!(read.id(), letter.id());
    let position = PartitionOffset { partition: 2, offset: 18 };
    assert_eq!(read, Resolution { position, ..resolution });
}

#[test]
fn a_stop_is_read_as_it_was_written_and_by_no_name_of_another_kind_of_stop() {
    use StopRecordKind::{Resumed, Stopped};
    for (kind, code) in [
        (Stopped, BREAKER_OPEN),
        (Resumed, BREAKER_OPEN),
        (Stopped, "slot.moved"),
        (Resumed, "slot.moved"),
    ] {
        let stop = Stop { code: code.to_owned(), since_unix_us: 5, ..Stop::default() };
        let slot = "a".to_owned();
        let written = StopRecord::new(kind, StopBody { slot, stop, ..StopBody::default() });
        let entry = written.record(&letters(), |record| entry(record, 0, 0));
        let is_read = STOP_NAMES.map(|(name, ..)| StopRecord::parse(&entry, name).is_some());
        let is_own = STOP_NAMES.map(|(.., of_breaker)| of_breaker == (code == BREAKER_OPEN));
        assert_eq!(is_read, is_own, "{written:?}");
        assert_eq!(parse(entry), LogRecord::Stop(Box::new(written)));
    }
}

#[test]
fn events_without_an_id_are_told_apart_by_their_place() {
    let nameless = letter_of(&Outbound { id: "", ..event() }, 100);
    // The time tells a topic from one that is made anew under the same name.
    assert_eq!(nameless.event_id, "@2:17@1970-01-01T00:00:03.000000Z");
    let same = letter_of(&event(), 100);
    let behind = DeadLetter { ordinal: 1, ..same.clone() };
    assert_ne!(same.id(), behind.id(), "one transaction may use an id twice");
    let elsewhere = DeadLetter { lsn: "0/1".to_owned(), ..same.clone() };
    assert_ne!(same.id(), elsewhere.id(), "two tables may use the same ids");
}

#[test]
fn a_replay_on_a_shared_topic_names_its_consumer() {
    let own = DeadLetter {
        relay: "billing@host".to_owned(),
        exchange: String::new(),
        ..letter_of(&event(), 100)
    };
    assert!(own.system.is_empty(), "{own:?}");
    assert_eq!(own.consumer("billing.dlq"), Some("billing"));
    own.event(1, own.consumer("billing.dlq"), |again| {
        assert_eq!(again.headers.last(), Some(&("dlq-replay-for", &b"billing"[..])));
    });
    // An exchange leads to the consumer alone.
    let routed = DeadLetter { exchange: "billing".to_owned(), ..own.clone() };
    assert_eq!(routed.consumer("billing.dlq"), None);
    // The topic of another relay, or of another name: all consumers need the event.
    let of_relay = DeadLetter { relay: "walrelay@host".to_owned(), ..own.clone() };
    assert_eq!(of_relay.consumer("outbox.dlq"), None);
    assert_eq!(own.consumer("billing.letters"), None);
    // A relay whose slot has the name of a consumer.
    let of_namesake = DeadLetter { system: "7000".to_owned(), ..own.clone() };
    assert_eq!(of_namesake.consumer("billing.dlq"), None);
}

#[test]
fn whatever_else_is_in_the_topic_is_foreign() {
    let header = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
    for headers in [
        vec![],
        vec![header("id", b"e1")],
        vec![header("dlq-event-id", b"e1")],
        vec![header("dlq-error-class", b"x")],
        vec![header("dlq-event-id", b"e1"), header("dlq-resolution", b"forgotten")],
        vec![header("dlq-resolution", b"replayed")],
    ] {
        let entry = LogEntry { headers: headers.clone(), ..LogEntry::default() };
        assert_eq!(parse(entry), LogRecord::Foreign, "{headers:?}");
    }
    // WHEN a letter is damaged THEN it is read as far as it goes
    let headers = vec![
        header("dlq-event-id", &[0xff]),
        header("dlq-error-class", b"x"),
        header("dlq-attempts", b"many"),
        header("dlq-failed-at", b"yesterday"),
        header("dlq-original-partition", b"-"),
    ];
    let entry = LogEntry { headers, written_unix_us: 5, ..LogEntry::default() };
    let LogRecord::DeadLetter(letter) = parse(entry) else { panic!("it is a letter") };
    assert_eq!((letter.event_id.as_str(), letter.attempts), ("\u{fffd}", 0));
    assert_eq!((letter.failed_unix_us, letter.commit_unix_us), (5, 5));
    assert_eq!(letter.partition, None);
}

fn raw(name: &str, value: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), value.to_vec())
}

#[test]
fn whatever_stands_in_the_topic_what_is_kept_of_it_is_bounded() {
    // GIVEN a record in which everything is two megabytes long
    let long = vec![b'x'; 2 << 20];
    let names = [
        "dlq-event-id",
        "dlq-original-topic",
        "dlq-original-exchange",
        "dlq-error-class",
        "dlq-error-msg",
        "dlq-lsn",
        "dlq-relay",
        "dlq-system",
        "dlq-attempts",
        "dlq-failed-at",
    ];
    let mut headers: Vec<_> = names.iter().map(|name| raw(name, &long)).collect();
    headers.extend((0..5000).map(|n| raw(&format!("h{n}"), b"v")));
    let text = String::from_utf8(long.clone()).unwrap();
    let entry = LogEntry {
        headers,
        key: Some(long.clone()),
        event_type: Some(text.clone()),
        content_type: Some(text),
        ..LogEntry::default()
    };
    // WHEN it is read as a dead letter THEN each part is cut, and it is never replayed
    let LogRecord::DeadLetter(letter) = parse(entry.clone()) else { panic!("it is a letter") };
    let texts = [
        &letter.event_id,
        &letter.topic,
        &letter.exchange,
        &letter.error_class,
        &letter.error_msg,
        &letter.lsn,
        &letter.relay,
        &letter.system,
        letter.event_type.as_ref().unwrap(),
    ];
    assert!(texts.iter().all(|text| text.len() <= 4096), "{:?}", texts.map(String::len));
    assert!(letter.error_class.len() <= 200 && letter.headers.len() <= 1024);
    let key = letter.key.as_ref().unwrap();
    assert_eq!((key.bytes.len(), key.hash()), (1024, KeyHash::of(&long)));
    assert_eq!(letter.not_replayable(&[]), Some(NotReplayable::Incomplete));
    // THEN its resolution is about the same dead letter
    let mut headers = entry.headers;
    headers.push(raw("dlq-resolution", b"discarded"));
    let LogRecord::Resolution(resolution) =
        parse(LogEntry { headers, key: Some(long), ..LogEntry::default() })
    else {
        panic!("it is a resolution")
    };
    assert_eq!(resolution.id(), letter.id());
    assert_eq!(resolution.key_hash(), letter.key_hash());
}

#[test]
fn a_letter_with_one_part_that_is_too_long_to_keep_is_not_replayed() {
    let is_incomplete = |long: &str| {
        let value = |name: &str| if name == long { vec![b'x'; 3 << 20] } else { b"x".to_vec() };
        let names = [
            "dlq-event-id",
            "dlq-original-topic",
            "dlq-original-exchange",
            "dlq-error-class",
            "trace",
        ];
        let headers = names.map(|name| raw(name, &value(name))).to_vec();
        let entry = LogEntry { headers, ..LogEntry::default() };
        let LogRecord::DeadLetter(letter) = parse(entry) else { panic!("it is a letter") };
        letter.incomplete
    };
    assert!(!is_incomplete("none"));
    for long in ["dlq-event-id", "dlq-original-topic", "dlq-original-exchange", "trace"] {
        assert!(is_incomplete(long), "{long}");
    }
}

#[test]
fn a_letter_has_not_failed_after_it_was_written() {
    let failed_of = |failed_at: &str, written_unix_us: i64| {
        let headers = vec![
            raw("dlq-event-id", b"e1"),
            raw("dlq-error-class", b"x"),
            raw("dlq-failed-at", failed_at.as_bytes()),
        ];
        let entry = LogEntry { headers, written_unix_us, ..LogEntry::default() };
        let LogRecord::DeadLetter(letter) = parse(entry) else { panic!("it is a letter") };
        rfc3339(letter.failed_unix_us)
    };
    let written = parse_rfc3339("2026-11-21T14:00:00Z").unwrap();
    let failed = |failed_at: &str| failed_of(failed_at, written);
    // Clocks differ, and brokers keep seconds or milliseconds.
    assert!(failed("2026-11-21T14:00:59Z").starts_with("2026-11-21T14:00:59"));
    assert!(failed("2026-11-20T14:00:00Z").starts_with("2026-11-20T14:00:00"));
    assert!(failed("2099-01-01T00:00:00Z").starts_with("2026-11-21T14:00:00"));
    // A record of RabbitMQ may have no time.
    assert!(failed_of("2026-11-21T13:00:00Z", 0).starts_with("2026-11-21T13:00:00"));
}

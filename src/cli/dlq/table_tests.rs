use super::*;
use crate::dead_letter::fold::DeadLetterState;
use crate::dead_letter::record::{RecordKey, Uncut};
use crate::dead_letter::view::HistoryEntry;

fn letter() -> DeadLetter {
    DeadLetter {
        event_id: "e\x1b[2J1".to_owned(),
        key: Some(RecordKey { bytes: vec![b'k', 0xff], uncut: None }),
        topic: "a-topic-with-a-name-that-is-far-too-long".to_owned(),
        error_class: "kafka.unknown-topic".to_owned(),
        error_msg: "no\nsuch topic".to_owned(),
        attempts: 5,
        value: Some(b"{\"a\":\t1}\n\x07".to_vec()),
        headers: vec![("id".to_owned(), b"e1".to_vec())],
        ..DeadLetter::default()
    }
}

const KNOWN: KnownDeadLetter =
    KnownDeadLetter { state: DeadLetterState::Open, replays: 0, selected: true };

#[test]
fn a_line_has_columns_and_no_control_characters() {
    let letter = letter();
    let line = line(&letter, &KNOWN);
    let at = |word: &str| TABLE.head().find(word).unwrap();
    assert!(line.starts_with("1970-01-01 00:00:00  open"), "{line}");
    assert_eq!(&line[at("EVENT ID")..at("EVENT ID") + 11], "e\\u{1b}[2J1");
    assert_eq!(&line[at("KEY")..at("KEY") + 5], "k\\xff");
    assert!(line.contains("a-topic-with-a-name-that-is…  kafka.unknown-topic"), "{line}");
    assert!(line.ends_with("5      no\\nsuch topic"), "{line}");
}

#[test]
fn a_line_has_the_class_of_a_missing_topic_of_kafka_as_a_whole() {
    let error_class = "kafka.unknown-topic-or-partition".to_owned();
    let line = line(&DeadLetter { error_class, ..letter() }, &KNOWN);
    assert!(line.contains("  kafka.unknown-topic-or-partition   5 "), "{line}");
}

#[test]
fn one_letter_is_told_whole_and_its_payload_on_request() {
    let position = PartitionOffset { partition: 1, offset: 2 };
    let (at, by) = ("1970-01-01T00:00:00Z".to_owned(), "orders".to_owned());
    let entry = HistoryEntry { at, what: "dead-lettered", by, position };
    let uncut = Some(Uncut { size_bytes: 99, sha256: "ab".to_owned() });
    let letter = DeadLetter { uncut, ..letter() };
    let (known, not_replayable) = (KNOWN, Some(NotReplayable::Cut));
    let found = FoundDeadLetter { letter, known, not_replayable, history: vec![entry] };
    let text = detail(&found, false);
    assert!(text.contains("\nreplay         not possible: the value is cut (docs"), "{text}");
    for part in ["header         id = e1", "99 bytes, cut", "dead-lettered by orders (1:2)"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("payload"), "{text}");
    let text = detail(&found, true);
    assert!(text.ends_with("payload (text)\n{\"a\":\t1}\n\\u{7}"), "{text}");
    // WHEN a consumer has cut it THEN there is no hash
    let uncut = Some(Uncut { size_bytes: 99, sha256: String::new() });
    let letter = DeadLetter { uncut, ..found.letter.clone() };
    let (history, not_replayable) = (Vec::new(), None);
    let text = detail(&FoundDeadLetter { letter, known, not_replayable, history }, false);
    assert!(!text.contains("not possible"), "{text}");
    assert!(text.contains("99 bytes, cut\n"), "{text}");
    let letter = DeadLetter { value: Some(vec![0xff]), ..found.letter };
    let text = detail(&FoundDeadLetter { letter, ..found }, true);
    assert!(text.ends_with("payload (base64)\n/w=="), "{text}");
}

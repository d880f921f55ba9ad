use super::*;
use crate::dead_letter::record::RecordKey;

const NOON: i64 = 1_795_262_400_000_000;
const MINUTE: i64 = 60_000_000;

fn words(set: impl FnOnce(&mut FilterText)) -> FilterText {
    let mut words = FilterText::default();
    set(&mut words);
    words
}

fn filter(set: impl FnOnce(&mut FilterText)) -> DeadLetterFilter {
    DeadLetterFilter::parse(&words(set), NOON).unwrap()
}

fn letter() -> DeadLetter {
    DeadLetter {
        event_id: "e1".to_owned(),
        key: Some(RecordKey { bytes: vec![b'k', 0xff], uncut: None }),
        topic: "orders".to_owned(),
        error_class: "kafka.unknown-topic".to_owned(),
        error_msg: "Broker: Unknown topic".to_owned(),
        failed_unix_us: NOON - 10 * MINUTE,
        value: Some(b"secret".to_vec()),
        ..DeadLetter::default()
    }
}

#[test]
fn an_age_beyond_all_times_is_none() {
    for age in ["4000000000d", "200000000d"] {
        let words = FilterText { since: Some(age.to_owned()), ..FilterText::default() };
        let faults = DeadLetterFilter::parse(&words, i64::MAX).unwrap_err();
        assert_eq!(faults[0].code, "dead-letter.bad-filter", "{age}");
    }
}

#[test]
fn all_that_is_given_must_hold() {
    assert!(filter(|_| ()).matches(&letter()));
    let right = |words: &mut FilterText| {
        words.ids = vec!["e1".into()];
        words.key = Some("k\\xff".into());
        words.topic = Some("orders".into());
        words.error_class = Some("kafka.unknown-topic".into());
        words.text = Some("UNKNOWN".into());
        words.since = Some("15m".into());
        words.until = Some("2026-11-21T11:55:00Z".into());
    };
    assert!(filter(right).matches(&letter()));
    let wrong: [fn(&mut FilterText); 7] = [
        |words| words.ids = vec!["e2".into()],
        |words| words.key = Some("k".into()),
        |words| words.topic = Some("order".into()),
        |words| words.error_class = Some("kafka".into()),
        // A payload is not searched.
        |words| words.text = Some("secret".into()),
        |words| words.since = Some("9m".into()),
        |words| words.until = Some("2026-11-21 11:50".into()),
    ];
    for (index, wrong) in wrong.iter().enumerate() {
        let both = filter(|words| {
            right(words);
            wrong(words);
        });
        assert!(!both.matches(&letter()), "{index}");
    }
}

#[test]
fn a_text_is_sought_where_people_look() {
    for text in ["E1", "k\\xff", "ORDERS", "kafka.", "broker: unk"] {
        assert!(filter(|words| words.text = Some(text.into())).matches(&letter()), "{text}");
    }
}

#[test]
fn open_letters_are_meant_unless_others_are_named() {
    assert_eq!(filter(|_| ()).states(), [DeadLetterState::Open]);
    let replayed = filter(|words| words.state = Some("replayed".into()));
    assert_eq!(replayed.states(), [DeadLetterState::Replayed]);
    assert_eq!(filter(|words| words.state = Some("all".into())).states(), ALL);
    // THEN a state alone narrows nothing
    assert!(!replayed.narrows() && !filter(|_| ()).narrows());
    assert!(filter(|words| words.key = Some(String::new())).narrows());
}

#[test]
fn what_is_malformed_is_told_all_at_once() {
    let words = FilterText {
        ids: vec![String::new()],
        since: Some("yesterday".into()),
        until: Some("5".into()),
        state: Some("closed".into()),
        ..FilterText::default()
    };
    let faults = DeadLetterFilter::parse(&words, NOON).unwrap_err();
    let places: Vec<&str> = faults.iter().map(|fault| fault.place.as_str()).collect();
    assert_eq!(places, ["id", "since", "until", "state"]);
    for fault in faults {
        assert_eq!((fault.exit, fault.code), (Exit::Usage, "dead-letter.bad-filter"));
        assert!(fault.mend.starts_with("expected "), "{fault}");
    }
    for time in ["", "m", "-5m", "+5m", "5 m", "5w", "ü", "2026-02-30", "99999999999d"] {
        let words = FilterText { since: Some(time.into()), ..FilterText::default() };
        assert_eq!(DeadLetterFilter::parse(&words, NOON).unwrap_err().len(), 1, "{time}");
    }
    let turned =
        FilterText { since: Some("1h".into()), until: Some("2h".into()), ..FilterText::default() };
    let faults = DeadLetterFilter::parse(&turned, NOON).unwrap_err();
    assert!(faults[0].to_string().contains("a time after since"), "{}", faults[0]);
}

#[test]
fn a_filter_says_what_it_is() {
    let told = filter(|words| {
        words.key = Some("a\n".into());
        words.since = Some("2d".into());
    });
    assert_eq!(told.to_string(), "key=a\\n since=2026-11-19T12:00:00.000000Z state=open");
}

#[test]
fn the_words_are_those_of_json() {
    let read: FilterText = serde_json::from_str(r#"{"error_class": "x", "since": "2h"}"#).unwrap();
    assert_eq!((read.error_class.as_deref(), read.since.as_deref()), (Some("x"), Some("2h")));
    assert!(serde_json::from_str::<FilterText>(r#"{"errorclass": "x"}"#).is_err());
    // THEN an id, and several, are both a filter
    for (text, ids) in
        [(r#"{"id": "e1"}"#, vec!["e1"]), (r#"{"id": ["e1", "e2"]}"#, vec!["e1", "e2"])]
    {
        assert_eq!(serde_json::from_str::<FilterText>(text).unwrap().ids, ids);
    }
}

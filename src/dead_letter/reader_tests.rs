use super::super::testing::{BEGAN, SECOND, Spec, TopicFixture};
use super::*;
use crate::base::time::rfc3339;
use crate::dead_letter::filter::FilterText;
use crate::dead_letter::replay::{ReplayAction, ReplayJob, run};
use crate::dead_letter::view::find;

fn filter(set: impl FnOnce(&mut FilterText)) -> DeadLetterFilter {
    let mut words = FilterText::default();
    set(&mut words);
    DeadLetterFilter::parse(&words, BEGAN).unwrap()
}

/// Ids of the letters that are meant, and how many records were read for them.
fn listed(fixture: &TopicFixture, filter: &DeadLetterFilter) -> (Vec<String>, u64) {
    let topic = fixture.topic();
    let index = topic.index(filter).unwrap();
    let mut ids = Vec::new();
    let outcome = topic.letters(filter, &index, |letter, _| {
        ids.push(letter.event_id.clone());
        Ok(true)
    });
    outcome.unwrap();
    assert_eq!(ids.len(), index.count_selected(filter.states()));
    (ids, index.records)
}

#[test]
fn letters_are_listed_by_state() {
    let fixture = TopicFixture::new();
    fixture.write_many(6);
    let some = filter(|words| words.ids = vec!["e2".into()]);
    let job = ReplayJob::new(ReplayAction::Discard, some, "me");
    run(&fixture.topic(), &job, &|| fixture.clock(), &mut |_| ());
    assert_eq!(listed(&fixture, &filter(|_| ())).0, ["e0", "e1", "e3", "e4", "e5"]);
    assert_eq!(listed(&fixture, &filter(|words| words.state = Some("discarded".into()))).0, ["e2"]);
    assert_eq!(listed(&fixture, &filter(|words| words.state = Some("all".into()))).0.len(), 6);
    assert!(listed(&fixture, &filter(|words| words.topic = Some("none".into()))).0.is_empty());
    // THEN a caller that has enough is asked no more
    let (all, mut asked) = (filter(|_| ()), 0);
    let index = fixture.topic().index(&all).unwrap();
    let outcome = fixture.topic().letters(&all, &index, |_, _| {
        asked += 1;
        Ok(asked < 2)
    });
    assert_eq!((outcome, asked), (Ok(()), 2));
}

#[test]
fn what_was_before_a_time_is_not_read() {
    let fixture = TopicFixture::new();
    fixture.write_many(100);
    let since = rfc3339(BEGAN + 95 * SECOND);
    let (ids, records) = listed(&fixture, &filter(|words| words.since = Some(since)));
    assert_eq!((ids.len(), records), (5, 65), "reading begins a minute earlier");
    assert_eq!(listed(&fixture, &filter(|_| ())).1, 100);
}

#[test]
fn a_letter_that_failed_by_a_clock_ahead_of_that_of_its_record_is_among_those_since_then() {
    let fixture = TopicFixture::new();
    let failed_at = rfc3339(BEGAN + 40 * SECOND);
    fixture.publish(&[
        ("dlq-event-id", b"e1"),
        ("dlq-error-class", b"unroutable"),
        ("dlq-failed-at", failed_at.as_bytes()),
    ]);
    let since = filter(|words| words.since = Some(rfc3339(BEGAN + 30 * SECOND)));
    assert_eq!(listed(&fixture, &since).0, ["e1"]);
}

#[test]
fn foreign_records_are_counted_and_passed_over() {
    let fixture = TopicFixture::new();
    fixture.publish(&[("dlq-event-id", &[0xff, 0xfe])]);
    fixture.write_many(2);
    let index = fixture.topic().index(&DeadLetterFilter::default()).unwrap();
    assert_eq!((index.records, index.foreign, index.open()), (3, 1, 2));
}

#[test]
fn one_letter_is_found_with_its_history() {
    let fixture = TopicFixture::new();
    fixture.write_many(3);
    // GIVEN that it was repeated by a kill, replayed, and came back
    fixture.write(Spec { id: "e1", failed_unix_us: BEGAN + 7 * SECOND, ..Spec::default() });
    let one = filter(|words| words.ids = vec!["e1".into()]);
    let job = ReplayJob::new(ReplayAction::Replay, one, "me");
    run(&fixture.topic(), &job, &|| fixture.clock(), &mut |_| ());
    fixture.write(Spec { id: "e1", failed_unix_us: BEGAN + 9 * SECOND, ..Spec::default() });
    let found = find(&fixture.topic(), &["e1".to_owned()]).unwrap().letters;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].letter.failed_unix_us, BEGAN + 9 * SECOND);
    assert_eq!(found[0].known.replays, 1);
    let history: Vec<&str> = found[0].history.iter().map(|step| step.what).collect();
    assert_eq!(history, ["dead-lettered", "dead-lettered", "replayed", "dead-lettered"]);
    // THEN an id that nobody knows is told
    let unknown = ["e9".to_owned()];
    let fault = find(&fixture.topic(), &unknown).unwrap().missing(&unknown).unwrap();
    assert_eq!((fault.exit, fault.code), (Exit::Failed, "dead-letter.unknown"));
}

#[test]
fn a_reading_holds_no_more_dead_letters_than_it_may() {
    let fixture = TopicFixture::new();
    fixture.write_many(6);
    let at_most = |letters_max| DeadLetterTopic { letters_max, ..fixture.topic() };
    let all = filter(|_| ());
    assert_eq!(at_most(6).index(&all).unwrap().open(), 6);
    let fault = at_most(5).index(&all).unwrap_err();
    assert_eq!((fault.code, &*fault.place), ("dead-letter.too-many", "since"));
    // WHEN the time is narrowed as it says THEN there is room
    let since = rfc3339(BEGAN + 64 * SECOND);
    let late = filter(|words| words.since = Some(since));
    assert_eq!(at_most(5).index(&late).unwrap().open(), 2);
}

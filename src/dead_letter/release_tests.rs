use std::cell::Cell;

use super::super::testing::{SECOND, Spec, TopicFixture, audit, header};
use super::*;
use crate::dead_letter::replay::{WINDOW, run};

fn request(key: Option<&str>, force: bool) -> ReleaseRequest {
    ReleaseRequest { key: key.map(str::to_owned), force, by: "me".to_owned() }
}

/// The outcome of a release, which a dry run has told before it.
fn asked(fixture: &TopicFixture, key: Option<&str>, force: bool) -> Result<Vec<String>, Fault> {
    let (request, written) = (request(key, force), fixture.written_behind(0).len());
    let would = releasable_keys(&fixture.topic(), &request);
    assert_eq!(fixture.written_behind(0).len(), written, "a dry run writes nothing");
    let released = release(&fixture.topic(), &request, &|| fixture.clock());
    let released = released.map(|ReleasedKeys { keys, meanwhile }| {
        assert_eq!(meanwhile, 0);
        keys
    });
    assert_eq!(would, released);
    released
}

fn parked(fixture: &TopicFixture) -> usize {
    fixture.topic().index(&DeadLetterFilter::default()).unwrap().releases().count()
}

/// Two parked keys, `a` with two letters, `b` with one, and one letter that parks nothing.
fn fixture() -> TopicFixture {
    let fixture = TopicFixture::new();
    for (id, key, parks_key) in
        [("1", "a", true), ("2", "a", true), ("3", "b", true), ("4", "c", false)]
    {
        fixture.write(Spec { id, key: Some(key), parks_key, ..Spec::default() });
    }
    fixture
}

#[test]
fn a_key_with_open_letters_is_released_only_when_meant() {
    let (fixture, key) = (fixture(), Some("a"));
    let fault = asked(&fixture, key, false).unwrap_err();
    assert_eq!((fault.exit, fault.code), (Exit::Failed, "dead-letter.key-has-open"));
    assert!(fault.what.contains("2 dead letters of key a are open"), "{fault}");
    assert!(fault.mend.contains("walrelay dlq replay --key='a'"), "{fault}");
    assert_eq!((parked(&fixture), fixture.written_behind(4).len()), (2, 0));
    // WHEN a person insists
    assert_eq!(asked(&fixture, key, true), Ok(vec!["a".to_owned()]));
    assert_eq!((parked(&fixture), fixture.open()), (1, 4));
    // THEN it is not parked any more, and those that are are named
    let fault = asked(&fixture, key, true).unwrap_err();
    assert_eq!(fault.code, "dead-letter.not-parked");
    assert!(fault.mend.ends_with(": b"), "{fault}");
}

#[test]
fn what_was_replayed_is_released_without_a_question() {
    let fixture = fixture();
    let fault = asked(&fixture, None, false).unwrap_err();
    assert!(fault.what.contains("3 dead letters of 2 keys are open"), "{fault}");
    let filter = DeadLetterFilter::default();
    let job = ReplayJob::new(ReplayAction::Replay, filter, "me");
    assert_eq!(run(&fixture.topic(), &job, &|| fixture.clock(), &mut |_| ()).progress.done, 4);
    assert_eq!(parked(&fixture), 2, "a replay releases nothing");
    assert_eq!(asked(&fixture, None, false), Ok(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(parked(&fixture), 0);
    assert_eq!(asked(&fixture, None, false), Ok(Vec::new()));
    let fault = asked(&fixture, Some("a"), false).unwrap_err();
    assert!(fault.mend.contains("no key is parked"), "{fault}");
}

#[test]
fn a_key_whose_parking_record_is_gone_is_released_when_meant() {
    // GIVEN what a running relay has parked behind a record that was deleted
    let fixture = TopicFixture::new();
    let class = CLASS_PARKED;
    fixture.write(Spec { id: "2", key: Some("a"), class, ..Spec::default() });
    fixture.write(Spec { id: "3", key: Some("b"), ..Spec::default() });
    let fault = asked(&fixture, Some("a"), false).unwrap_err();
    assert_eq!(fault.code, "dead-letter.not-parked");
    assert!(fault.mend.contains("walrelay dlq release --key='a' --force"), "{fault}");
    assert_eq!(asked(&fixture, Some("b"), true).unwrap_err().code, "dead-letter.not-parked");
    assert_eq!(fixture.written_behind(2).len(), 0);
    // WHEN a person insists THEN the relay is told
    assert_eq!(asked(&fixture, Some("a"), true), Ok(vec!["a".to_owned()]));
    let written = fixture.written_behind(2);
    assert_eq!(header(&written[0], "dlq-resolution").as_deref(), Some("released"));
}

#[test]
fn a_key_that_two_systems_may_have_parked_is_released_for_both_when_meant() {
    // GIVEN two relays in one topic, and letters behind records that were deleted
    let fixture = TopicFixture::new();
    let behind = |id, system| {
        let class = CLASS_PARKED;
        fixture.write(Spec { id, key: Some("a"), class, system, ..Spec::default() });
    };
    let released = |letters| -> Vec<_> {
        let records = fixture.written_behind(letters);
        let of = |name: &str| records.iter().filter_map(|it| header(it, name)).collect::<Vec<_>>();
        let mut released: Vec<_> = of("dlq-system").into_iter().zip(of("dlq-event-id")).collect();
        released.sort();
        released
    };
    let both = |ids: [&str; 2]| [0, 1].map(|at| (["1", "2"][at].to_owned(), ids[at].to_owned()));
    let twice = Ok(vec!["a".to_owned(), "a".to_owned()]);
    behind("b", "2");
    behind("a", "1");
    behind("c", "2");
    // WHEN a person insists THEN each is told behind its last one
    assert_eq!(asked(&fixture, Some("a"), true), twice);
    assert_eq!(released(3), both(["a", "c"]));
    // WHEN one of both has the record that parks it
    fixture.write(Spec {
        id: "d",
        key: Some("a"),
        parks_key: true,
        system: "2",
        ..Spec::default()
    });
    let written = fixture.written_behind(0).len();
    assert_eq!(asked(&fixture, Some("a"), true), twice);
    assert_eq!(released(written), both(["a", "d"]));
    assert_eq!(parked(&fixture), 0);
}

#[test]
fn letters_that_come_meanwhile_are_told() {
    // GIVEN a relay that writes on while the key is being released, until it hears of it
    let (fixture, key) = (fixture(), Some("a"));
    let written = Cell::new(0);
    let clock = || {
        let specs = [None, Some(("5", "a")), Some(("6", "b")), Some(("1", "a"))];
        let spec = specs.get(written.get()).copied();
        written.set(written.get() + 1);
        if let Some(Some((id, key))) = spec {
            fixture.write(Spec { id, key: Some(key), ..Spec::default() });
        }
        fixture.clock()
    };
    let asked = request(key, true);
    let released = release(&fixture.topic(), &asked, &clock).unwrap();
    // THEN those of the key that are new are counted
    assert!(written.get() > 4);
    assert_eq!(released, ReleasedKeys { keys: vec!["a".to_owned()], meanwhile: 1 });
}

#[test]
fn a_stop_settles_the_releases_that_are_in_flight_and_leaves_the_others() {
    // GIVEN more parked keys than are released at once, and a stop behind the first of them
    let fixture = TopicFixture::new();
    for n in 0..WINDOW + 10 {
        let key = n.to_string();
        fixture.write(Spec { id: &key, key: Some(&key), parks_key: true, ..Spec::default() });
    }
    let looks = Cell::new(0);
    let clock = || {
        looks.set(looks.get() + 1);
        fixture.stop.store(looks.get() > 3, Ordering::Relaxed);
        fixture.clock()
    };
    let fault = release(&fixture.topic(), &request(None, true), &clock).unwrap_err();
    assert_eq!(fault.code, "dead-letter.interrupted");
    assert!(fault.what.contains("65 of 74 keys were released, and 0 more may"), "{fault}");
    fixture.stop.store(false, Ordering::Relaxed);
    assert_eq!(parked(&fixture), 9);
}

#[test]
fn a_broker_that_takes_nothing_ends_it() {
    let fixture = fixture();
    fixture.broker.set_full(true);
    let asked = request(None, true);
    let fault = release(&fixture.topic(), &asked, &|| fixture.fast_clock()).unwrap_err();
    assert_eq!(fault.code, "dead-letter.unwritable");
    assert!(fault.what.ends_with("; 0 of 2 keys are released, and more may be"), "{fault}");
    assert!(
        fault.mend.ends_with("\nthen repeat the release: what is released is left out"),
        "{fault}"
    );
    assert!(fixture.elapsed_us() <= 60 * SECOND);
}

#[test]
fn who_has_released_what_stands_in_the_log_however_it_ends() {
    let fixture = fixture();
    let lines = audit(|| drop(asked(&fixture, None, true)));
    let [begins, ended] = &lines[..] else { panic!("{lines:?}") };
    for part in ["audit: parked keys: release begins", "who=\"me\"", "[\"a\", \"b\"]", "count=2"] {
        assert!(begins.contains(part), "{begins}");
    }
    assert!(ended.contains("release ended") && ended.contains("count=2 ended=\"done\""), "{ended}");
    // WHEN the broker takes nothing THEN the beginning is told before anything is written
    let fixture = self::fixture();
    fixture.broker.set_full(true);
    let asked = request(None, true);
    let lines = audit(|| drop(release(&fixture.topic(), &asked, &|| fixture.fast_clock())));
    let [begins, ended] = &lines[..] else { panic!("{lines:?}") };
    assert!(begins.contains("release begins"), "{begins}");
    assert!(ended.contains("count=0 ended=\"dead-letter.unwritable\""), "{ended}");
    // WHEN it is refused THEN that is told, too
    let asked = ReleaseRequest { force: false, ..asked };
    let lines = audit(|| drop(release(&fixture.topic(), &asked, &|| fixture.clock())));
    assert!(lines[0].contains("count=0 ended=\"dead-letter.key-has-open\""), "{lines:?}");
}

#[test]
fn a_key_in_a_hint_is_one_word_of_the_shell() {
    let fixture = TopicFixture::new();
    fixture.write(Spec { key: Some("it's $(x)"), parks_key: true, ..Spec::default() });
    let fault = asked(&fixture, None, false).unwrap_err();
    assert!(fault.mend.contains(r"replay --key='it'\''s $(x)'"), "{fault}");
    assert!(fault.mend.contains(r"release --key='it'\''s $(x)' --force"), "{fault}");
}

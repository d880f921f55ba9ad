use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn at(commit: u64, ordinal: u64) -> Position {
    Position { commit_lsn: Lsn::from_wire(commit), ordinal }
}

fn event<'a>(id: &'a str, key: Option<&'a [u8]>, value: &'a [u8]) -> Outbound<'a> {
    Outbound {
        exchange: "",
        topic: "t",
        key,
        value: Some(value),
        id,
        event_type: None,
        content_type: None,
        headers: &[],
        commit_unix_us: 5,
        partition: None,
    }
}

fn mark(commit: u64, key: u32) -> Mark {
    Mark { position: at(commit, 0), fingerprint: Fingerprint { event: commit, key } }
}

fn passes_over(known: &mut KnownEvents, fingerprint: Fingerprint) -> bool {
    known.passes_over(fingerprint, Stored::No).is_some()
}

/// Which of the events from `from` on are passed over, given as commit and key, when they come in
/// this order.
fn passed_over(marks: &[Mark], from: u64, events: &[(u64, u32)]) -> Vec<u64> {
    let mut known = KnownEvents::default();
    known.load(marks.iter().copied(), Lsn::from_wire(from));
    let over = |&&(commit, key): &&(u64, u32)| {
        known.begins(Lsn::from_wire(commit));
        known.is_active() && passes_over(&mut known, Fingerprint { event: commit, key })
    };
    events.iter().filter(over).map(|(commit, _)| *commit).collect()
}

#[test]
fn a_fingerprint_tells_positions_and_contents_apart() {
    let base = Fingerprint::of(at(1, 0), &event("a", Some(b"k"), b"v"));
    assert_eq!(base, Fingerprint::of(at(1, 0), &event("a", Some(b"k"), b"v")));
    let later = Outbound { commit_unix_us: 6, ..event("a", Some(b"k"), b"v") };
    for other in [
        Fingerprint::of(at(1, 1), &event("a", Some(b"k"), b"v")),
        Fingerprint::of(at(2, 0), &event("a", Some(b"k"), b"v")),
        Fingerprint::of(at(1, 0), &event("b", Some(b"k"), b"v")),
        Fingerprint::of(at(1, 0), &event("a", Some(b"l"), b"v")),
        Fingerprint::of(at(1, 0), &event("a", None, b"v")),
        Fingerprint::of(at(1, 0), &event("a", Some(b"k"), b"w")),
        Fingerprint::of(at(1, 0), &event("a", Some(b""), b"kv")),
        Fingerprint::of(at(1, 0), &later),
    ] {
        assert_ne!(base.event, other.event);
        assert_ne!(other.event, Fingerprint::NONE.event);
    }
    assert_ne!(base.key, 0);
    assert_eq!(Fingerprint::of(at(1, 0), &event("a", None, b"v")).key, 0);
}

#[test]
fn a_marked_event_is_passed_over_once_and_an_older_mark_is_not_loaded() {
    let mut known = KnownEvents::default();
    let marks = [mark(10, 1), mark(20, 2), mark(30, 3)];
    assert_eq!(known.load(marks.into_iter(), Lsn::from_wire(20)), 2);
    let of = |commit, key| Fingerprint { event: commit, key };
    assert!(!passes_over(&mut known, of(10, 1)));
    assert!(passes_over(&mut known, of(20, 2)));
    assert!(!passes_over(&mut known, of(20, 2)), "one mark is one event");
    known.begins(Lsn::from_wire(30));
    assert!(known.is_active());
    known.begins(Lsn::from_wire(31));
    assert!(!known.is_active());
}

#[test]
fn behind_an_event_that_is_published_again_so_is_every_later_one_of_its_key() {
    let marks = [mark(20, 1), mark(30, 2), mark(40, 0)];
    let events = [(10, 1), (15, 0), (20, 1), (30, 2), (40, 0)];
    assert_eq!(passed_over(&marks, 0, &events), [30, 40]);
}

#[test]
fn a_mark_in_front_of_that_of_an_earlier_event_of_its_key_does_not_count() {
    // GIVEN a process that repeated 10 and died before it could repeat 20
    let marks = [mark(20, 1), mark(20, 2), mark(10, 1)];
    assert_eq!(passed_over(&marks, 0, &[(10, 1), (20, 1), (20, 2)]), [10, 20]);
    // THEN it does not matter that 10 is not sent any more
    let marks = [mark(20, 1), mark(10, 1)];
    assert_eq!(passed_over(&marks, 15, &[(20, 1)]), [0_u64; 0]);
    // Events without a key are not ordered.
    let marks = [mark(20, 0), mark(10, 0)];
    assert_eq!(passed_over(&marks, 15, &[(20, 0)]), [20]);
}

/// What the processes of the model do with the events from the slot's position on.
#[derive(Clone, Debug)]
struct Life {
    /// How many events it comes to before it dies.
    reaches: usize,
    /// Which of the published ones it hears a confirm of, and in which order it marks them.
    confirms: Vec<u8>,
    /// How far the slot's position moves, at most.
    reports: usize,
}

fn life() -> impl Strategy<Value = Life> {
    (0..14_usize, prop::collection::vec(any::<u8>(), 14), 0..14_usize)
        .prop_map(|(reaches, confirms, reports)| Life { reaches, confirms, reports })
}

#[test]
fn what_a_topic_holds_is_passed_over_as_far_as_its_key_has_come() {
    use Stored::{Last, No, Yes};
    let (file, topic) = (Some(KnownFrom::StateFile), Some(KnownFrom::Topic));
    // GIVEN what the topic holds of the events of a key, in order, and which of them are marked
    let cases = [
        ([Yes, Last, No], &[][..], [topic, topic, None]),
        // What was published again is later than what the topic holds.
        ([No, Yes, Last], &[], [None, None, None]),
        ([Last, Yes, Yes], &[], [topic, None, None]),
        ([Last, No, No], &[2, 3], [topic, None, None]),
        // The second is a dead letter.
        ([Last, No, No], &[1, 2], [file, file, None]),
        ([Yes, Last, No], &[1], [file, topic, None]),
    ];
    for (stored, marked, expected) in cases {
        let mut known = KnownEvents::default();
        known.load(marked.iter().map(|commit| mark(*commit, 7)), Lsn::from_wire(1));
        let events = (1..).zip(&stored);
        let found =
            events.map(|(event, stored)| known.passes_over(Fingerprint { event, key: 7 }, *stored));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{stored:?} {marked:?}");
    }
    // GIVEN events without a key THEN none matters to another
    let mut known = KnownEvents::default();
    let found = [No, Yes, Yes].map(|it| known.passes_over(Fingerprint { event: 1, key: 0 }, it));
    assert_eq!(found, [None, topic, topic]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// However often processes die: nothing is passed over that the broker does not have, and the
    /// last record of each key is that of its latest event.
    #[test]
    fn nothing_is_lost_and_the_latest_event_of_a_key_comes_last(
        keys in prop::collection::vec(0..4_u32, 14),
        lives in prop::collection::vec(life(), 1..6),
        losses in prop::collection::vec((0..4_usize, 0..6_usize), 6),
    ) {
        // What the broker holds, in order; what the file holds; below which event the slot is.
        let (mut topic, mut marks): (Vec<usize>, Vec<Mark>) = (Vec::new(), Vec::new());
        let mut slot = 0;
        let last = Life { reaches: 14, confirms: vec![0; 14], reports: 0 };
        for (life, (back, overwritten)) in lives.iter().chain([&last]).zip(losses) {
            let commit = |event: usize| 10 * event as u64 + 10;
            let mut known = KnownEvents::default();
            known.load(marks.iter().copied(), Lsn::from_wire(commit(slot)));
            let mut confirmed: HashMap<usize, bool> = HashMap::new();
            let mut published = Vec::new();
            for (event, key) in (0..life.reaches.min(14)).zip(&keys).skip(slot) {
                known.begins(Lsn::from_wire(commit(event)));
                let fingerprint = Fingerprint { event: commit(event), key: *key };
                if known.is_active() && passes_over(&mut known, fingerprint) {
                    prop_assert!(topic.contains(&event), "{event} is lost");
                    confirmed.insert(event, true);
                } else {
                    topic.push(event);
                    published.push(event);
                }
            }
            // Confirms of different keys come in any order, those of one key in order.
            published.sort_by_key(|event| (life.confirms[keys[*event] as usize], *event));
            for event in published {
                let stopped = life.confirms[event] % 4 == 0;
                let of_key = |other: &usize| keys[*other] == keys[event] && keys[event] != 0;
                let waits = confirmed.iter().any(|(other, done)| of_key(other) && !done);
                let done = !stopped && !waits;
                confirmed.insert(event, done);
                if done {
                    marks.push(mark(commit(event), keys[event]));
                }
            }
            let settled = (slot..14).take_while(|event| confirmed.get(event) == Some(&true));
            slot = (slot + settled.count()).min(slot.max(life.reports));
            // A Postgres that crashes has an older position.
            slot = slot.saturating_sub(back);
            // The ring has no room for the oldest marks.
            marks.drain(..overwritten.min(marks.len()));
        }
        for key in 1..4 {
            let of_key = |event: &&usize| keys[**event] == key;
            let latest = (0..14).rfind(|event| keys[*event] == key);
            prop_assert_eq!(topic.iter().rfind(of_key).copied(), latest, "key {}", key);
        }
        prop_assert!((0..14).all(|event| topic.contains(&event)), "{topic:?}");
    }
}

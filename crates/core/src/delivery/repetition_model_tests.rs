//! A new process judges marks and topics together, however earlier processes have died.
//!
//! The world is a stream of events, two topics, dead letters, a slot and a state file. Processes
//! publish from the slot's position on, each as far as it comes, and hear of some confirms. The last
//! one hears of all, and then everything must be right.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::known::{Fingerprint, KnownEvents, Mark};
use super::stored::{Stored, StoredEvents};
use crate::base::event::{Outbound, Position};
use crate::base::lsn::Lsn;
use crate::metrics::KnownFrom;

const EVENTS: usize = 14;
const END: Lsn = Lsn::from_wire(10_000);

#[derive(Clone, Copy, Debug)]
struct Event {
    transaction: u64,
    /// 0 for none.
    key: u8,
    topic: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// No topic was read.
    None,
    /// The partition of odd keys was left out.
    Partial,
    Whole,
}

/// The acts of one process.
#[derive(Clone, Debug)]
struct Life {
    look: Look,
    /// It runs elsewhere, without this state file.
    is_peer: bool,
    /// How many events it comes to before it dies.
    reaches: usize,
    /// Whether each event becomes a dead letter, arrives, and is confirmed.
    fates: Vec<(bool, bool, bool)>,
    /// How far the slot's position moves, at most.
    reports: usize,
    /// How far a crash of Postgres then sets it back.
    back: usize,
    /// How many of the oldest marks the ring has no room for.
    overwritten: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Topic(&'static str),
    DeadLetters,
}

#[derive(Debug, Default)]
struct World {
    events: Vec<Event>,
    /// The records that the broker holds, in order.
    records: Vec<(Place, usize)>,
    marks: Vec<Mark>,
    /// The first event that Postgres sends to the next process.
    slot: usize,
}

/// The events that a process has published, and those that it has passed over.
#[derive(Debug, Default)]
struct Outcome {
    published: Vec<usize>,
    passed_over: Vec<usize>,
}

impl World {
    fn commit(&self, event: usize) -> Lsn {
        Lsn::from_wire(100 + 10 * self.events[event].transaction)
    }

    /// The first event of the transaction of this one.
    fn begin(&self, event: usize) -> usize {
        (0..event).rfind(|it| self.commit(*it) != self.commit(event)).map_or(0, |it| it + 1)
    }

    fn holds(&self, event: usize) -> bool {
        self.records.iter().any(|(_, it)| *it == event)
    }

    fn with<T>(&self, event: usize, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let Event { key, topic, .. } = self.events[event];
        let (lsn, key, value) = (self.commit(event).to_string(), [key], [event as u8]);
        then(&Outbound {
            topic,
            key: Some(&key[..]).filter(|key| *key != [0]),
            value: Some(&value),
            id: "1",
            headers: &[("lsn", lsn.as_bytes())],
            ..Outbound::default()
        })
    }

    fn look(&self, look: Look) -> StoredEvents {
        let mut stored = StoredEvents::of(self.commit(self.slot)..END);
        for topic in ["a", "b"].into_iter().filter(|_| look != Look::None) {
            let mut found = stored.another();
            let records = self.records.iter().filter(|(place, _)| *place == Place::Topic(topic));
            for (_, event) in records {
                if look == Look::Whole || self.events[*event].key.is_multiple_of(2) {
                    self.with(*event, |record| found.add(record, 0));
                }
            }
            stored.append((topic.to_owned(), false), found, look == Look::Whole);
        }
        stored
    }

    fn live(&mut self, life: &Life) -> Outcome {
        let mut stored = self.look(life.look);
        let mut known = KnownEvents::default();
        if life.is_peer {
            // It leaves a trace in the slot, and then the marks are not believed.
            self.marks.clear();
        }
        known.load(self.marks.iter().copied(), self.commit(self.slot));
        let mut outcome = Outcome::default();
        let mut settled = HashSet::new();
        // Where a key has unconfirmed events; none if one of them has not arrived.
        let mut open: HashMap<u8, Option<Place>> = HashMap::new();
        for event in self.slot..life.reaches.min(EVENTS) {
            let (is_dead_letter, arrives, confirmed) = life.fates[event];
            let Event { key, topic, .. } = self.events[event];
            let position = Position { commit_lsn: self.commit(event), ordinal: event as u64 };
            let fingerprint = self.with(event, |it| Fingerprint::of(position, it));
            let found = self.with(event, |it| stored.take(it, position.commit_lsn));
            if let Some(from) = known.pass_over(position, fingerprint, found) {
                if from == KnownFrom::Topic && !life.is_peer {
                    self.marks.push(Mark { position, fingerprint, is_dead_letter: false });
                }
                outcome.passed_over.push(event);
                settled.insert(event);
                continue;
            }
            outcome.published.push(event);
            let place = if is_dead_letter { Place::DeadLetters } else { Place::Topic(topic) };
            let waits = key != 0 && open.get(&key).is_some_and(|it| *it != Some(place));
            let confirmed = confirmed && !open.contains_key(&key);
            if waits || !(arrives || confirmed) {
                open.entry(key).and_modify(|it| *it = None).or_insert(None);
                continue;
            }
            self.records.push((place, event));
            if confirmed {
                settled.insert(event);
                if !life.is_peer {
                    self.marks.push(Mark { position, fingerprint, is_dead_letter });
                }
            } else if key != 0 {
                open.insert(key, Some(place));
            }
        }
        let end = (self.slot..EVENTS).find(|event| !settled.contains(event)).unwrap_or(EVENTS);
        let end = end.min(life.reports.max(self.slot));
        let end = if end == EVENTS { EVENTS - 1 } else { end };
        self.slot = self.begin(end.saturating_sub(life.back));
        self.marks.drain(..life.overwritten.min(self.marks.len()));
        outcome
    }

    /// The events of this one's key in its topic, in the order of their records.
    fn records_of_key(&self, event: usize) -> impl DoubleEndedIterator<Item = usize> {
        let Event { key, topic, .. } = self.events[event];
        let of_key = move |(place, it): &&(Place, usize)| {
            *place == Place::Topic(topic) && self.events[*it].key == key
        };
        self.records.iter().filter(of_key).map(|(_, it)| *it)
    }
}

fn event() -> impl Strategy<Value = (u64, u8, bool)> {
    (0..2_u64, 0..4_u8, prop::bool::weighted(0.3))
}

fn life() -> impl Strategy<Value = Life> {
    let looks = [Look::None, Look::Partial, Look::Whole];
    let fate = || (prop::bool::weighted(0.15), any::<bool>(), any::<bool>());
    let steps = (0..=EVENTS, 0..EVENTS, 0..4_usize, 0..6_usize);
    let who = (prop::sample::select(looks.to_vec()), prop::bool::weighted(0.2));
    (who, steps, prop::collection::vec(fate(), EVENTS)).prop_map(|(who, steps, fates)| {
        let ((look, is_peer), (reaches, reports, back, overwritten)) = (who, steps);
        Life { look, is_peer, reaches, fates, reports, back, overwritten }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn when_all_is_quiet_everything_is_there_in_order_and_ends_with_the_latest_event(
        events in prop::collection::vec(event(), EVENTS),
        lives in prop::collection::vec(life(), 1..6),
        last in life(),
        made_anew in any::<bool>(),
    ) {
        // GIVEN what earlier processes have left
        let mut world = World::default();
        let mut transaction = 0;
        for (step, key, other) in events {
            transaction += step;
            world.events.push(Event { transaction, key, topic: if other { "b" } else { "a" } });
        }
        for life in &lives {
            let outcome = world.live(life);
            for event in outcome.passed_over {
                prop_assert!(world.holds(event), "{event} is lost: {world:?}");
            }
        }
        let made_anew = made_anew && last.look == Look::Whole && !last.is_peer;
        if made_anew {
            world.records.retain(|(place, _)| *place == Place::DeadLetters);
        }
        let published = |event: usize| (Place::Topic(world.events[event].topic), event);
        let held: Vec<bool> =
            (0..EVENTS).map(|event| world.records.contains(&published(event))).collect();
        let ends: Vec<Option<usize>> = (0..EVENTS).map(|it| world.records_of_key(it).next_back()).collect();
        let slot = world.slot;
        // WHEN the last one publishes what it must
        let fates = last.fates.iter().map(|(dead, ..)| (*dead, true, true)).collect();
        let outcome = world.live(&Life { reaches: EVENTS, fates, ..last.clone() });
        // THEN nothing is lost, also where a topic holds nothing any more
        for event in slot..EVENTS {
            prop_assert!(world.holds(event), "{event} is lost: {world:?}");
        }
        let mut firsts: HashMap<u8, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for (_, event) in &world.records {
            let key = world.events[*event].key;
            let is_first = seen.insert(event) && key != 0 && !made_anew;
            if is_first && let Some(before) = firsts.insert(key, *event) {
                prop_assert!(before < *event, "{event} behind {before}: {world:?}");
            }
        }
        let is_no_dead_letter = |it: &usize| !world.records.contains(&(Place::DeadLetters, *it));
        for event in (0..EVENTS).filter(|event| world.events[*event].key != 0) {
            let of_key = || world.records_of_key(event).filter(is_no_dead_letter);
            prop_assert_eq!(of_key().next_back(), of_key().max(), "{}: {:?}", event, world);
        }
        // AND nothing is repeated without need
        if last.look == Look::Whole {
            let mut again = HashSet::new();
            for event in outcome.published {
                let key = world.events[event].key;
                let behind = key != 0 && ends[event].is_none_or(|end| end < event);
                let needed = !held[event] || behind || again.contains(&key);
                prop_assert!(needed, "{event} is repeated: {ends:?} {world:?}");
                if key != 0 {
                    again.insert(key);
                }
            }
        }
    }
}

/// The verdicts on three events of a key, of which the topic holds these records.
fn decided(records: &[usize], marks: &[(usize, bool)]) -> [(Stored, bool); 3] {
    let event = |transaction| Event { transaction, key: 1, topic: "a" };
    let events: Vec<Event> = (0..3).map(event).collect();
    let records = records.iter().map(|it| (Place::Topic("a"), *it)).collect();
    let mut world = World { events, records, ..World::default() };
    let position =
        |world: &World, event: usize| Position { commit_lsn: world.commit(event), ordinal: 0 };
    for (event, is_dead_letter) in marks {
        let position = position(&world, *event);
        let fingerprint = world.with(*event, |it| Fingerprint::of(position, it));
        world.marks.push(Mark { position, fingerprint, is_dead_letter: *is_dead_letter });
    }
    let (mut stored, mut known) = (world.look(Look::Whole), KnownEvents::default());
    known.load(world.marks.iter().copied(), Lsn::ZERO);
    [0, 1, 2].map(|event| {
        let position = position(&world, event);
        let fingerprint = world.with(event, |it| Fingerprint::of(position, it));
        let found = world.with(event, |it| stored.take(it, position.commit_lsn));
        (found, known.pass_over(position, fingerprint, found).is_some())
    })
}

#[test]
fn a_topic_that_was_read_overrules_the_marks_of_what_was_published() {
    use Stored::{No, Overtaken, Yes};
    const DEAD: bool = true;
    let (is, not) = (true, false);
    // The first was repeated after the second: a mark of the first says nothing of the second.
    let marked = [(0, !DEAD)];
    assert_eq!(decided(&[0, 1, 0], &marked), [(Yes, is), (No, not), (No, not)]);
    let marked = [(0, !DEAD), (1, !DEAD), (2, !DEAD)];
    assert_eq!(decided(&[0, 1, 0], &marked), [(Yes, is), (No, not), (No, not)]);
    // The topic was made anew, or is that of another cluster.
    assert_eq!(decided(&[], &marked), [(No, not), (No, not), (No, not)]);
    // What was removed from it, as by compaction, is not repeated.
    assert_eq!(decided(&[2], &marked), [(Overtaken, is), (Overtaken, is), (Yes, is)]);
    assert_eq!(decided(&[2], &[]), [(Overtaken, not), (Overtaken, not), (Yes, not)]);
    // A dead letter is not in the topic.
    let marked = [(0, !DEAD), (1, DEAD), (2, !DEAD)];
    assert_eq!(decided(&[0], &marked), [(Yes, is), (No, is), (No, not)]);
    assert_eq!(decided(&[0, 2], &marked), [(Yes, is), (Overtaken, is), (Yes, is)]);
}

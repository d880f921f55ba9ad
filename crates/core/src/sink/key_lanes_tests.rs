//! The lanes by example, and against a broker that confirms, refuses and vanishes at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::hash::fixed_hash;

#[derive(Debug)]
struct Item {
    id: String,
    lane: Option<u64>,
    bytes: usize,
}

impl LaneItem for Item {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    fn unique(&self) -> Option<u64> {
        Some(fixed_hash(&self.id))
    }

    fn size_bytes(&self) -> usize {
        self.bytes
    }
}

fn item(hasher: &KeyHasher, id: &str, key: Option<&str>, bytes: usize) -> Item {
    Item { id: id.to_owned(), lane: key.map(|key| hasher.lane(key.as_bytes())), bytes }
}

fn lanes(events: &[(&str, Option<&str>)]) -> KeyLanes<Item> {
    let (mut lanes, hasher) = (KeyLanes::default(), KeyHasher::new(7));
    for (sequence, (id, key)) in events.iter().enumerate() {
        lanes.add(sequence as Sequence, item(&hasher, id, *key, 10));
    }
    lanes
}

/// As the worker sends.
fn next(lanes: &mut KeyLanes<Item>) -> Option<(Sequence, Arc<Item>)> {
    let (sequence, item) = lanes.peek()?;
    lanes.sent(sequence, &item);
    Some((sequence, item))
}

fn send_all(lanes: &mut KeyLanes<Item>) -> Vec<Sequence> {
    std::iter::from_fn(|| next(lanes).map(|(sequence, _)| sequence)).collect()
}

#[test]
fn an_event_without_an_answer_does_not_keep_others_from_being_sent_alone() {
    // GIVEN an event that stays without an answer, and a suspect
    let mut lanes = lanes(&[("0", None), ("1", None), ("2", None), ("3", None)]);
    assert_eq!(next(&mut lanes).map(|(sequence, _)| sequence), Some(0));
    lanes.suspect(1);
    assert!(send_all(&mut lanes).is_empty());
    // WHEN that has lasted long THEN the suspect is sent as if it were alone
    lanes.unanswered(0);
    assert_eq!(send_all(&mut lanes), [1]);
    // WHEN the broker closes THEN it is not known over which of both
    assert_eq!(lanes.lone_suspect(), None);
    lanes.connection_lost(true);
    // AND the suspect goes first, alone, and is found
    assert_eq!(send_all(&mut lanes), [1]);
    assert_eq!(lanes.lone_suspect(), Some(1));
    lanes.refused(1);
    // AND the other is sent with the rest, until it is without an answer again
    assert_eq!(send_all(&mut lanes), [0, 2, 3]);
    lanes.connection_lost(true);
    assert_eq!((lanes.suspects, send_all(&mut lanes)), (3, vec![2]));
    lanes.confirmed(2);
    assert_eq!(send_all(&mut lanes), [3]);
    lanes.confirmed(3);
    assert_eq!(send_all(&mut lanes), [0]);
    lanes.unanswered(0);
    assert_eq!((lanes.suspects, lanes.has_unanswered()), (0, true));
    lanes.confirmed(0);
    assert!(!lanes.has_unanswered());
}

#[test]
fn what_is_without_an_answer_counts_towards_no_bound() {
    let mut lanes = KeyLanes::default();
    let hasher = KeyHasher::new(7);
    let count = IN_FLIGHT_EVENTS_MAX as Sequence;
    for sequence in 0..2 * count {
        lanes.add(sequence, item(&hasher, &sequence.to_string(), None, 10));
    }
    assert!(send_all(&mut lanes).into_iter().eq(0..count));
    // WHEN one of them has no answer for long THEN one more is sent
    lanes.unanswered(7);
    lanes.unanswered(7);
    assert_eq!(send_all(&mut lanes), [count]);
    // WHEN it is answered THEN it makes no room for another
    lanes.confirmed(7);
    assert!(send_all(&mut lanes).is_empty());
    (0..=count).filter(|sequence| *sequence != 7).for_each(|sequence| lanes.confirmed(sequence));
    assert_eq!(lanes.in_flight_bytes, 0);
}

#[test]
fn an_event_that_is_set_aside_keeps_no_other_waiting() {
    let mut lanes = lanes(&[("0", Some("a")), ("1", Some("a")), ("2", None)]);
    // GIVEN a suspect for which there is no room
    lanes.suspect(0);
    assert_eq!(lanes.peek().map(|(sequence, _)| sequence), Some(0));
    lanes.set_aside(0);
    assert_eq!(lanes.suspects, 0);
    // THEN others are sent, and those of its key wait
    assert_eq!(send_all(&mut lanes), [2]);
    // WHEN there is room THEN it is a suspect again: it goes once nothing else is in flight
    lanes.take_up(0);
    assert_eq!(lanes.suspects, 1);
    assert!(send_all(&mut lanes).is_empty());
    lanes.confirmed(2);
    assert_eq!(send_all(&mut lanes), [0]);
    // What is in flight is not taken up again.
    lanes.take_up(0);
    assert!(send_all(&mut lanes).is_empty());
    lanes.confirmed(0);
    assert_eq!(lanes.suspects, 0);
    assert_eq!(send_all(&mut lanes), [1]);
}

#[test]
fn two_events_of_one_id_are_never_in_flight_together() {
    let mut lanes = lanes(&[("same", Some("a")), ("same", Some("b")), ("2", Some("c"))]);
    assert_eq!(send_all(&mut lanes), [0]);
    // WHEN the first has no answer for long THEN others go on
    lanes.unanswered(0);
    assert_eq!(send_all(&mut lanes), [2]);
    lanes.confirmed(0);
    assert_eq!(send_all(&mut lanes), [1]);
}

#[test]
fn bytes_in_flight_are_bounded_and_a_giant_passes_alone() {
    let (mut lanes, hasher) = (KeyLanes::default(), KeyHasher::new(7));
    for sequence in 0..3 {
        let body = IN_FLIGHT_BYTES_MAX * 2 / 3;
        lanes.add(sequence, item(&hasher, &sequence.to_string(), None, body));
    }
    lanes.add(3, item(&hasher, "giant", None, IN_FLIGHT_BYTES_MAX + 1));
    for sequence in 0..4 {
        assert_eq!(send_all(&mut lanes), [sequence]);
        lanes.confirmed(sequence);
    }
    assert_eq!(lanes.in_flight_bytes, 0);
}

#[test]
fn a_dead_letter_takes_the_place_and_the_turn_of_its_event() {
    let (mut lanes, hasher) = (lanes(&[("0", Some("a")), ("1", Some("a"))]), KeyHasher::new(7));
    let lane = lanes.item(0).and_then(LaneItem::lane);
    let letter = |id: &str| Item { lane, ..item(&hasher, id, None, 20) };
    assert_eq!(send_all(&mut lanes), [0]);
    // What is in flight is not replaced.
    lanes.replace_with_dead_letter(0, letter("too early"));
    assert_eq!(lanes.item(0).unwrap().id, "0");
    lanes.refused(0);
    // WHEN the second is buried first THEN it waits for the first
    lanes.replace_with_dead_letter(1, letter("letter 1"));
    assert!(send_all(&mut lanes).is_empty());
    lanes.replace_with_dead_letter(0, letter("letter 0"));
    assert_eq!(next(&mut lanes).map(|(_, item)| item.id.clone()).unwrap(), "letter 0");
    assert!(send_all(&mut lanes).is_empty());
    lanes.confirmed(0);
    assert_eq!(next(&mut lanes).map(|(_, item)| item.id.clone()).unwrap(), "letter 1");
    lanes.confirmed(1);
    assert!(lanes.entries.is_empty() && lanes.lanes.is_empty());
    assert_eq!(lanes.in_flight_bytes, 0);
}

#[test]
fn what_waits_behind_a_parked_event_is_refused_once_and_in_order() {
    let key = Some("a");
    let mut lanes = lanes(&[("0", key), ("1", key), ("2", Some("b")), ("3", key), ("4", None)]);
    assert_eq!(send_all(&mut lanes), [0, 2, 4]);
    lanes.refused(0);
    assert_eq!(lanes.refuse_behind(0), [1, 3]);
    assert!(lanes.refuse_behind(0).is_empty());
    // WHEN the first is settled THEN the next waits for an order, and does not go by itself
    lanes.retry(0);
    assert_eq!(send_all(&mut lanes), [0]);
    lanes.confirmed(0);
    assert!(send_all(&mut lanes).is_empty());
    // AND an order for the one behind it waits for its turn
    lanes.retry(3);
    assert!(send_all(&mut lanes).is_empty());
    lanes.retry(1);
    assert_eq!(send_all(&mut lanes), [1]);
    lanes.confirmed(1);
    assert_eq!(send_all(&mut lanes), [3]);
}

#[test]
fn an_older_event_that_comes_back_goes_first() {
    let (mut lanes, hasher) = (lanes(&[]), KeyHasher::new(7));
    lanes.add(5, item(&hasher, "5", Some("a"), 10));
    lanes.add(3, item(&hasher, "3", Some("a"), 10));
    assert_eq!(send_all(&mut lanes), [3]);
    lanes.confirmed(3);
    assert_eq!(send_all(&mut lanes), [5]);
    // WHEN one comes back and is parked THEN what is in flight behind it is not refused with it
    lanes.add(4, item(&hasher, "4", Some("a"), 10));
    assert_eq!(send_all(&mut lanes), [4]);
    lanes.refused(4);
    assert!(lanes.refuse_behind(4).is_empty());
    // WHEN that is refused THEN it waits for an order, whatever comes of the one before it
    lanes.refused(5);
    lanes.retry(4);
    assert_eq!(send_all(&mut lanes), [4]);
    lanes.confirmed(4);
    assert!(send_all(&mut lanes).is_empty());
    lanes.retry(5);
    assert_eq!(send_all(&mut lanes), [5]);
}

#[test]
fn a_lane_is_given_up_when_the_last_of_it_in_trouble_is_confirmed() {
    let (mut lanes, hasher) = (lanes(&[]), KeyHasher::new(7));
    let key = Some("a");
    let lane = hasher.lane(b"a");
    for (sequence, troubled) in [(0, true), (1, false), (2, true), (3, false), (4, false)] {
        let item = item(&hasher, &sequence.to_string(), key, 10);
        match troubled {
            true => lanes.add_troubled(sequence, item),
            false => lanes.add(sequence, item),
        }
    }
    let leave = |lanes: &mut KeyLanes<Item>| {
        lanes.take_recovered(lane).into_iter().map(|(sequence, _)| sequence).collect::<Vec<_>>()
    };
    assert_eq!(send_all(&mut lanes), [0]);
    // WHEN it is refused, retried and confirmed THEN another one in trouble is still behind it
    lanes.refused(0);
    lanes.retry(0);
    for sequence in [0, 1] {
        assert_eq!(send_all(&mut lanes), [sequence]);
        assert!(leave(&mut lanes).is_empty());
        lanes.confirmed(sequence);
        assert!(leave(&mut lanes).is_empty());
    }
    assert_eq!(send_all(&mut lanes), [2]);
    lanes.confirmed(2);
    // THEN nothing that is in flight leaves, and then the rest does, in order
    assert_eq!(send_all(&mut lanes), [3]);
    assert!(leave(&mut lanes).is_empty());
    lanes.connection_lost(false);
    assert_eq!(leave(&mut lanes), [3, 4]);
    assert!(lanes.is_empty() && lanes.lanes.is_empty() && lanes.is_idle());
}

#[test]
fn a_lane_is_kept_while_one_of_it_is_refused() {
    let (key, lane) = (Some("a"), KeyHasher::new(7).lane(b"a"));
    let mut lanes = lanes(&[("0", key), ("1", key), ("2", key)]);
    assert_eq!(send_all(&mut lanes), [0]);
    lanes.refused(0);
    assert!(lanes.take_recovered(lane).is_empty());
    // WHEN it is confirmed after all THEN those behind it, which were refused with it, are kept
    assert_eq!(lanes.refuse_behind(0), [1, 2]);
    lanes.retry(0);
    assert_eq!(send_all(&mut lanes), [0]);
    lanes.confirmed(0);
    assert!(lanes.take_recovered(lane).is_empty());
}

proptest! {
    #[test]
    fn order_per_key_and_completeness_survive_any_broker(
        keys in prop::collection::vec(prop::option::of(0u8..4), 1..40),
        steps in prop::collection::vec((0u8..6, any::<usize>()), 0..200),
    ) {
        let (mut lanes, hasher) = (KeyLanes::<Item>::default(), KeyHasher::new(7));
        let mut flying: BTreeMap<Sequence, Option<u8>> = BTreeMap::new();
        let mut confirmed: Vec<(Sequence, Option<u8>)> = Vec::new();
        let mut refused: Vec<Sequence> = Vec::new();
        let mut taken = 0;
        let calm = std::iter::repeat((9, 0));
        for (kind, pick) in steps.into_iter().chain(calm) {
            if confirmed.len() == keys.len() {
                break;
            }
            let some = flying.keys().nth(pick % flying.len().max(1)).copied();
            match (kind, some) {
                (0, Some(sequence)) => {
                    flying.remove(&sequence);
                    lanes.refused(sequence);
                    refused.push(sequence);
                }
                (1, _) => {
                    lanes.connection_lost(pick % 2 == 1);
                    flying.clear();
                }
                (2 | 9, _) if !refused.is_empty() => lanes.retry(refused.swap_remove(0)),
                (3, _) if !refused.is_empty() => {
                    let sequence = refused.swap_remove(0);
                    let id = format!("letter {sequence}");
                    let lane = lanes.item(sequence).unwrap().lane;
                    lanes.replace_with_dead_letter(sequence, Item { lane, ..item(&hasher, &id, None, 7) });
                }
                (3.., Some(sequence)) => {
                    let key = flying.remove(&sequence).unwrap();
                    lanes.confirmed(sequence);
                    confirmed.push((sequence, key));
                }
                _ => {}
            }
            if taken < keys.len() {
                let key = keys[taken].map(|key| key.to_string());
                let item = item(&hasher, &taken.to_string(), key.as_deref(), 1);
                lanes.add(taken as Sequence, item);
                taken += 1;
            }
            while let Some((sequence, _)) = next(&mut lanes) {
                let key = keys[usize::try_from(sequence).unwrap()];
                let alone = key.is_none() || flying.values().all(|other| *other != key);
                prop_assert!(alone, "two of key {:?} in flight", key);
                prop_assert!(flying.insert(sequence, key).is_none());
            }
        }
        for key in 0..4 {
            let of_key = confirmed.iter().filter(|(_, it)| *it == Some(key));
            prop_assert!(of_key.map(|(sequence, _)| *sequence).is_sorted(), "key {}", key);
        }
        prop_assert!(lanes.entries.is_empty() && lanes.lanes.is_empty() && lanes.names.is_empty());
        prop_assert_eq!((lanes.in_flight_bytes, lanes.suspects), (0, 0));
    }
}

//! The desk by example, and against a broker that confirms, refuses and vanishes at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug)]
struct Parcel {
    id: String,
    lane: Option<u64>,
    bytes: usize,
}

impl Item for Parcel {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    fn unique(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn size_bytes(&self) -> usize {
        self.bytes
    }
}

fn parcel(lanes: &Lanes, id: &str, key: Option<&str>, bytes: usize) -> Parcel {
    Parcel { id: id.to_owned(), lane: key.map(|key| lanes.of(key.as_bytes())), bytes }
}

fn desk(events: &[(&str, Option<&str>)]) -> Desk<Parcel> {
    let (mut desk, lanes) = (Desk::default(), Lanes::default());
    for (sequence, (id, key)) in events.iter().enumerate() {
        desk.take(sequence as Sequence, parcel(&lanes, id, *key, 10));
    }
    desk
}

/// As the worker sends.
fn next(desk: &mut Desk<Parcel>) -> Option<(Sequence, Arc<Parcel>)> {
    let (sequence, parcel) = desk.peek()?;
    desk.sent(sequence, &parcel);
    Some((sequence, parcel))
}

fn send_all(desk: &mut Desk<Parcel>) -> Vec<Sequence> {
    std::iter::from_fn(|| next(desk).map(|(sequence, _)| sequence)).collect()
}

#[test]
fn one_event_of_a_key_is_in_flight_and_other_keys_flow() {
    let mut desk =
        desk(&[("0", Some("a")), ("1", Some("a")), ("2", Some("b")), ("3", None), ("4", None)]);
    assert_eq!(send_all(&mut desk), [0, 2, 3, 4]);
    desk.confirmed(2);
    assert!(send_all(&mut desk).is_empty());
    desk.confirmed(0);
    assert_eq!(send_all(&mut desk), [1]);
}

#[test]
fn a_refused_event_holds_its_key_until_it_is_retried_and_confirmed() {
    let mut desk = desk(&[("0", Some("a")), ("1", Some("a"))]);
    assert_eq!(send_all(&mut desk), [0]);
    desk.refused(0);
    assert!(send_all(&mut desk).is_empty());
    // A lost connection changes nothing about it.
    desk.lost(false);
    assert!(send_all(&mut desk).is_empty());
    desk.retry(0);
    assert_eq!(send_all(&mut desk), [0]);
    // A second order for what is under way is none.
    desk.retry(0);
    assert!(send_all(&mut desk).is_empty());
    desk.confirmed(0);
    assert_eq!(send_all(&mut desk), [1]);
}

#[test]
fn what_was_in_flight_is_sent_again_in_order() {
    let mut desk = desk(&[("0", None), ("1", None), ("2", None), ("3", None)]);
    assert_eq!(send_all(&mut desk), [0, 1, 2, 3]);
    desk.confirmed(1);
    desk.lost(false);
    assert_eq!(send_all(&mut desk), [0, 2, 3]);
}

#[test]
fn after_a_close_over_a_message_suspects_go_one_at_a_time_and_then_all_flow_again() {
    let mut desk = desk(&[("0", None), ("1", None), ("2", None)]);
    assert_eq!(next(&mut desk).map(|(sequence, _)| sequence), Some(0));
    assert_eq!(next(&mut desk).map(|(sequence, _)| sequence), Some(1));
    assert_eq!(desk.convicted(), None);
    desk.lost(true);
    assert_eq!(send_all(&mut desk), [0]);
    desk.confirmed(0);
    assert_eq!(send_all(&mut desk), [1]);
    // WHEN it happens again THEN it can only have been this one
    assert_eq!(desk.convicted(), Some(1));
    desk.refused(1);
    desk.lost(true);
    assert_eq!(send_all(&mut desk), [2]);
    desk.confirmed(2);
    assert_eq!(desk.suspects, 0);
}

#[test]
fn two_events_of_one_id_are_never_in_flight_together() {
    let mut desk = desk(&[("same", Some("a")), ("same", Some("b")), ("2", Some("c"))]);
    assert_eq!(send_all(&mut desk), [0]);
    desk.confirmed(0);
    assert_eq!(send_all(&mut desk), [1, 2]);
}

#[test]
fn bytes_in_flight_are_bounded_and_a_giant_passes_alone() {
    let (mut desk, lanes) = (Desk::default(), Lanes::default());
    for sequence in 0..3 {
        let body = IN_FLIGHT_BYTES_MAX * 2 / 3;
        desk.take(sequence, parcel(&lanes, &sequence.to_string(), None, body));
    }
    desk.take(3, parcel(&lanes, "giant", None, IN_FLIGHT_BYTES_MAX + 1));
    for sequence in 0..4 {
        assert_eq!(send_all(&mut desk), [sequence]);
        desk.confirmed(sequence);
    }
    assert_eq!(desk.in_flight_bytes, 0);
}

#[test]
fn a_dead_letter_takes_the_place_and_the_turn_of_its_event() {
    let (mut desk, lanes) = (desk(&[("0", Some("a")), ("1", Some("a"))]), Lanes::default());
    let lane = desk.item(0).and_then(Item::lane);
    let letter = |id: &str| Parcel { lane, ..parcel(&lanes, id, None, 20) };
    assert_eq!(send_all(&mut desk), [0]);
    // What is in flight is not replaced.
    desk.replace_with_dead_letter(0, letter("too early"));
    assert_eq!(desk.item(0).unwrap().id, "0");
    desk.refused(0);
    // WHEN the second is buried first THEN it waits for the first
    desk.replace_with_dead_letter(1, letter("letter 1"));
    assert!(send_all(&mut desk).is_empty());
    desk.replace_with_dead_letter(0, letter("letter 0"));
    assert_eq!(next(&mut desk).map(|(_, parcel)| parcel.id.clone()).unwrap(), "letter 0");
    assert!(send_all(&mut desk).is_empty());
    desk.confirmed(0);
    assert_eq!(next(&mut desk).map(|(_, parcel)| parcel.id.clone()).unwrap(), "letter 1");
    desk.confirmed(1);
    assert!(desk.entries.is_empty() && desk.lanes.is_empty());
    assert_eq!(desk.in_flight_bytes, 0);
}

#[test]
fn what_waits_behind_a_parked_event_is_refused_once_and_in_order() {
    let key = Some("a");
    let mut desk = desk(&[("0", key), ("1", key), ("2", Some("b")), ("3", key), ("4", None)]);
    assert_eq!(send_all(&mut desk), [0, 2, 4]);
    desk.refused(0);
    assert_eq!(desk.refuse_behind(0), [1, 3]);
    assert!(desk.refuse_behind(0).is_empty());
    // WHEN the first is settled THEN the next waits for an order, and does not go by itself
    desk.retry(0);
    assert_eq!(send_all(&mut desk), [0]);
    desk.confirmed(0);
    assert!(send_all(&mut desk).is_empty());
    // AND an order for the one behind it waits for its turn
    desk.retry(3);
    assert!(send_all(&mut desk).is_empty());
    desk.retry(1);
    assert_eq!(send_all(&mut desk), [1]);
    desk.confirmed(1);
    assert_eq!(send_all(&mut desk), [3]);
}

#[test]
fn an_older_event_that_comes_back_goes_first() {
    let (mut desk, lanes) = (desk(&[]), Lanes::default());
    desk.take(5, parcel(&lanes, "5", Some("a"), 10));
    desk.take(3, parcel(&lanes, "3", Some("a"), 10));
    assert_eq!(send_all(&mut desk), [3]);
    desk.confirmed(3);
    assert_eq!(send_all(&mut desk), [5]);
}

#[test]
fn a_lane_is_given_up_when_the_last_of_it_in_trouble_is_confirmed() {
    let (mut desk, lanes) = (desk(&[]), Lanes::default());
    let key = Some("a");
    let lane = lanes.of(b"a");
    for (sequence, troubled) in [(0, true), (1, false), (2, true), (3, false), (4, false)] {
        let parcel = parcel(&lanes, &sequence.to_string(), key, 10);
        match troubled {
            true => desk.take_troubled(sequence, parcel),
            false => desk.take(sequence, parcel),
        }
    }
    let leave = |desk: &mut Desk<Parcel>| {
        desk.recovered(lane).into_iter().map(|(sequence, _)| sequence).collect::<Vec<_>>()
    };
    assert_eq!(send_all(&mut desk), [0]);
    // WHEN it is refused, retried and confirmed THEN another one in trouble is still behind it
    desk.refused(0);
    desk.retry(0);
    for sequence in [0, 1] {
        assert_eq!(send_all(&mut desk), [sequence]);
        assert!(leave(&mut desk).is_empty());
        desk.confirmed(sequence);
        assert!(leave(&mut desk).is_empty());
    }
    assert_eq!(send_all(&mut desk), [2]);
    desk.confirmed(2);
    // THEN nothing that is in flight leaves, and then the rest does, in order
    assert_eq!(send_all(&mut desk), [3]);
    assert!(leave(&mut desk).is_empty());
    desk.lost(false);
    assert_eq!(leave(&mut desk), [3, 4]);
    assert!(desk.is_empty() && desk.lanes.is_empty() && desk.peek().is_none());
}

proptest! {
    #[test]
    fn order_per_key_and_completeness_survive_any_broker(
        keys in prop::collection::vec(prop::option::of(0u8..4), 1..40),
        steps in prop::collection::vec((0u8..6, any::<usize>()), 0..200),
    ) {
        let (mut desk, lanes) = (Desk::<Parcel>::default(), Lanes::default());
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
                    desk.refused(sequence);
                    refused.push(sequence);
                }
                (1, _) => {
                    desk.lost(pick % 2 == 1);
                    flying.clear();
                }
                (2 | 9, _) if !refused.is_empty() => desk.retry(refused.swap_remove(0)),
                (3, _) if !refused.is_empty() => {
                    let sequence = refused.swap_remove(0);
                    let id = format!("letter {sequence}");
                    let lane = desk.item(sequence).unwrap().lane;
                    desk.replace_with_dead_letter(sequence, Parcel { lane, ..parcel(&lanes, &id, None, 7) });
                }
                (3.., Some(sequence)) => {
                    let key = flying.remove(&sequence).unwrap();
                    desk.confirmed(sequence);
                    confirmed.push((sequence, key));
                }
                _ => {}
            }
            if taken < keys.len() {
                let key = keys[taken].map(|key| key.to_string());
                let parcel = parcel(&lanes, &taken.to_string(), key.as_deref(), 1);
                desk.take(taken as Sequence, parcel);
                taken += 1;
            }
            while let Some((sequence, _)) = next(&mut desk) {
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
        prop_assert!(desk.entries.is_empty() && desk.lanes.is_empty() && desk.names.is_empty());
        prop_assert_eq!((desk.in_flight_bytes, desk.suspects), (0, 0));
    }
}

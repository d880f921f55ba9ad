//! The desk by example, and against a broker that confirms, refuses and vanishes at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::message::Outbound;
use crate::sink::rabbitmq::message::Lanes;

fn message(lanes: &Lanes, id: &str, key: Option<&str>, bytes: usize) -> Message {
    let body = vec![b'x'; bytes];
    let event = Outbound {
        exchange: "outbox.events",
        topic: "t",
        key: key.map(str::as_bytes),
        value: Some(&body),
        id,
        event_type: None,
        content_type: None,
        headers: &[],
        commit_unix_us: 0,
        partition: None,
    };
    Message::copy(&event, lanes).unwrap()
}

fn desk(events: &[(&str, Option<&str>)]) -> Desk {
    let (mut desk, lanes) = (Desk::default(), Lanes::default());
    for (sequence, (id, key)) in events.iter().enumerate() {
        desk.take(sequence as Sequence, message(&lanes, id, *key, 10));
    }
    desk
}

fn send_all(desk: &mut Desk) -> Vec<Sequence> {
    std::iter::from_fn(|| desk.next().map(|(sequence, _)| sequence)).collect()
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
    assert_eq!(desk.next().map(|(sequence, _)| sequence), Some(0));
    assert_eq!(desk.next().map(|(sequence, _)| sequence), Some(1));
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
        desk.take(sequence, message(&lanes, &sequence.to_string(), None, body));
    }
    desk.take(3, message(&lanes, "giant", None, IN_FLIGHT_BYTES_MAX + 1));
    for sequence in 0..4 {
        assert_eq!(send_all(&mut desk), [sequence]);
        desk.confirmed(sequence);
    }
    assert_eq!(desk.in_flight_bytes, 0);
}

proptest! {
    #[test]
    fn order_per_key_and_completeness_survive_any_broker(
        keys in prop::collection::vec(prop::option::of(0u8..4), 1..40),
        steps in prop::collection::vec((0u8..6, any::<usize>()), 0..200),
    ) {
        let (mut desk, lanes) = (Desk::default(), Lanes::default());
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
                (3.., Some(sequence)) => {
                    let key = flying.remove(&sequence).unwrap();
                    desk.confirmed(sequence);
                    confirmed.push((sequence, key));
                }
                _ => {}
            }
            if taken < keys.len() {
                let key = keys[taken].map(|key| key.to_string());
                let message = message(&lanes, &taken.to_string(), key.as_deref(), 1);
                desk.take(taken as Sequence, message);
                taken += 1;
            }
            while let Some((sequence, _)) = desk.next() {
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
        prop_assert!(desk.entries.is_empty() && desk.lanes.is_empty() && desk.ids.is_empty());
        prop_assert_eq!((desk.in_flight_bytes, desk.suspects), (0, 0));
    }
}

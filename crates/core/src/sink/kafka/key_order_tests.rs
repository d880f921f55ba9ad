use std::collections::BTreeSet;

use super::super::events::{Event, SendState};
use super::super::port::TopicId;
use super::super::record::Record;
use super::*;

fn to(topic: TopicId) -> Destination {
    Destination { topic, partition: None, changes: 0 }
}

fn sent(lane: u64, to: Destination) -> Event {
    Event { commit_unix_us: 0, lane: Some(lane), state: SendState::Sent(to) }
}

/// The normal path of a sink; `sent` is in the order of sending.
#[derive(Default)]
struct NormalPath {
    events: Events,
    order: KeyOrder,
    held: BTreeMap<Sequence, (u64, TopicId)>,
    sent: Vec<Sequence>,
}

impl NormalPath {
    fn offer(&mut self, sequence: Sequence, lane: u64, topic: TopicId) {
        if self.order.must_wait(sequence, Some(lane), to(topic), &self.events) {
            self.events.add(sequence, Event::awaits_turn(Record::default()));
            self.order.wait(sequence, lane, to(topic));
            self.held.insert(sequence, (lane, topic));
            return;
        }
        self.events.add(sequence, sent(lane, to(topic)));
        self.order.handed_over(Some(lane), to(topic));
        self.sent.push(sequence);
    }

    fn answer(&mut self, sequence: Sequence) {
        let lane = self.events.remove(sequence).and_then(|event| event.lane);
        let mut released: BTreeSet<_> = self.order.answered(lane).into_iter().collect();
        while let Some(sequence) = released.pop_first() {
            let (lane, topic) = self.held.remove(&sequence).unwrap();
            let event = self.events.remove(sequence);
            self.order.taken_back(event.and_then(|event| event.lane));
            self.offer(sequence, lane, topic);
            released.extend(self.order.release(Some(lane)));
        }
    }
}

#[test]
fn an_event_waits_for_those_of_its_key_at_another_destination_and_for_no_others() {
    let mut path = NormalPath::default();
    // GIVEN events at one destination WHEN others of their keys go there THEN they do not wait
    path.offer(0, 7, 1);
    path.offer(1, 8, 1);
    path.offer(2, 7, 1);
    assert!(path.order.is_idle() && path.order.unconfirmed.is_empty());
    // WHEN they go elsewhere THEN they do, and so does what is behind them, wherever it goes
    path.offer(3, 7, 2);
    path.offer(4, 7, 1);
    path.offer(5, 9, 2);
    assert_eq!(path.sent, [0, 1, 2, 5]);
    // WHEN all that is older is answered, in any order, THEN they go, one destination at a time
    path.answer(2);
    assert_eq!(path.sent.len(), 4);
    path.answer(0);
    assert_eq!(path.sent, [0, 1, 2, 5, 3]);
    path.answer(3);
    assert_eq!(path.sent, [0, 1, 2, 5, 3, 4]);
    // WHEN nothing is unconfirmed any more THEN nothing is recorded
    [1, 4, 5].into_iter().for_each(|sequence| path.answer(sequence));
    assert!(path.events.is_empty() && path.order.is_idle());
    path.offer(6, 7, 2);
    path.offer(7, 7, 2);
    assert!(!path.order.is_recording && path.order.unconfirmed.is_empty());
}

#[test]
fn an_event_without_a_key_waits_for_nothing() {
    let mut path = NormalPath::default();
    path.offer(0, 7, 1);
    assert!(!path.order.must_wait(1, None, to(2), &path.events));
}

#[test]
fn another_partition_that_an_event_asks_for_is_another_destination() {
    let (mut order, mut flight) = (KeyOrder::default(), Events::default());
    let asks = |partition| Destination { topic: 1, partition: Some(partition), changes: 0 };
    assert!(!order.must_wait(0, Some(7), asks(0), &flight));
    flight.add(0, sent(7, asks(0)));
    order.handed_over(Some(7), asks(0));
    assert!(!order.must_wait(1, Some(7), asks(0), &flight));
    assert!(order.must_wait(1, Some(7), asks(1), &flight));
}

#[test]
fn what_waits_behind_a_parked_event_is_forgotten_and_what_is_older_is_released() {
    let mut order = KeyOrder::default();
    for sequence in [3, 5, 6] {
        order.wait(sequence, 7, to(2));
    }
    order.forget_behind(7, 4);
    assert!(!order.is_idle());
    assert_eq!(order.release(Some(7)), [3]);
    // WHEN nothing older waits THEN nothing is left
    order.wait(5, 7, to(2));
    order.forget_behind(7, 4);
    assert!(order.is_idle());
}

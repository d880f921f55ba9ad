use proptest::prelude::*;

use super::*;

fn to(topic: TopicId) -> Destination {
    Destination { topic, partition: None }
}

/// The fast way of a sink: flight and order together, events sent in the order of `sent`.
#[derive(Default)]
struct Way {
    flight: InFlight,
    order: KeyOrder<(u64, TopicId)>,
    sent: Vec<Sequence>,
    unanswered: BTreeMap<Sequence, (u64, TopicId)>,
}

impl Way {
    fn offer(&mut self, sequence: Sequence, lane: u64, topic: TopicId) {
        if self.order.must_wait(sequence, Some(lane), to(topic), &self.flight) {
            self.flight.add(sequence, 0, None);
            self.order.wait(sequence, lane, to(topic), (lane, topic));
            return;
        }
        self.flight.add(sequence, 0, Some(lane));
        self.order.handed_over(Some(lane), to(topic));
        self.sent.push(sequence);
        self.unanswered.insert(sequence, (lane, topic));
    }

    fn answer(&mut self, sequence: Sequence) {
        self.unanswered.remove(&sequence);
        let lane = self.flight.remove(sequence).and_then(|slot| slot.lane);
        let mut waited: BTreeMap<_, _> = self.order.answered(lane).into_iter().collect();
        while let Some((sequence, (lane, topic))) = waited.pop_first() {
            let slot = self.flight.remove(sequence);
            self.order.taken_back(slot.and_then(|slot| slot.lane));
            self.offer(sequence, lane, topic);
            waited.extend(self.order.release(lane));
        }
    }
}

#[test]
fn an_event_waits_for_those_of_its_key_at_another_destination_and_for_no_others() {
    let mut way = Way::default();
    // GIVEN events at one destination WHEN others of their keys go there THEN they do not wait
    way.offer(0, 7, 1);
    way.offer(1, 8, 1);
    way.offer(2, 7, 1);
    assert!(way.order.is_idle() && way.order.unconfirmed.is_empty());
    // WHEN they go elsewhere THEN they do, and so does what is behind them, wherever it goes
    way.offer(3, 7, 2);
    way.offer(4, 7, 1);
    way.offer(5, 9, 2);
    assert_eq!(way.sent, [0, 1, 2, 5]);
    // WHEN all that is older is answered, in any order, THEN they go, one destination at a time
    way.answer(2);
    assert_eq!(way.sent.len(), 4);
    way.answer(0);
    assert_eq!(way.sent, [0, 1, 2, 5, 3]);
    way.answer(3);
    assert_eq!(way.sent, [0, 1, 2, 5, 3, 4]);
    // WHEN nothing is unconfirmed any more THEN nothing is recorded
    [1, 4, 5].into_iter().for_each(|sequence| way.answer(sequence));
    assert!(way.flight.is_empty() && way.order.is_idle());
    way.offer(6, 7, 2);
    way.offer(7, 7, 2);
    assert!(!way.order.is_recording && way.order.unconfirmed.is_empty());
}

#[test]
fn an_event_without_a_key_waits_for_nothing() {
    let mut way = Way::default();
    way.offer(0, 7, 1);
    assert!(!way.order.must_wait(1, None, to(2), &way.flight));
}

#[test]
fn another_partition_that_an_event_asks_for_is_another_destination() {
    let (mut order, mut flight) = (KeyOrder::<()>::default(), InFlight::default());
    let asks = |partition| Destination { topic: 1, partition: Some(partition) };
    assert!(!order.must_wait(0, Some(7), asks(0), &flight));
    flight.add(0, 0, Some(7));
    order.handed_over(Some(7), asks(0));
    assert!(!order.must_wait(1, Some(7), asks(0), &flight));
    assert!(order.must_wait(1, Some(7), asks(1), &flight));
}

proptest! {
    /// Whatever is answered first: nothing is sent before all older ones of its key at other
    /// destinations were answered, older ones of its key were sent before it, and all are sent.
    #[test]
    fn all_are_sent_and_none_overtakes(
        events in prop::collection::vec((0_u64..4, 0_usize..3), 1..80),
        answers in prop::collection::vec(0_usize..80, 0..200),
    ) {
        let mut way = Way::default();
        let mut next = 0;
        let mut answers = answers.into_iter();
        let mut answered = std::collections::BTreeSet::new();
        while answered.len() < events.len() {
            let turn = answers.next().unwrap_or(1);
            let before = way.sent.len();
            if next < events.len() && (turn % 2 == 0 || way.unanswered.is_empty()) {
                let (lane, topic) = events[next];
                way.offer(next as Sequence, lane, topic);
                next += 1;
            } else {
                let which = way.unanswered.keys().nth(turn % way.unanswered.len()).copied();
                prop_assert!(which.is_some(), "something waits, and nothing is under way");
                let which = which.unwrap_or_default();
                answered.insert(which);
                way.answer(which);
            }
            for sent in &way.sent[before..] {
                let (lane, topic) = events[*sent as usize];
                for older in 0..*sent {
                    let (other, at) = events[older as usize];
                    let behind = other == lane && (at == topic || answered.contains(&older));
                    prop_assert!(other != lane || (behind && way.sent.contains(&older)));
                }
            }
        }
        prop_assert!(way.flight.is_empty() && way.order.is_idle());
    }
}

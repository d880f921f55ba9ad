//! Kafka refuses whole batches: what that does to those who have done nothing.

use walrelay::sink::log::From;
use walrelay_harness::consumer;

use crate::hand::{Event, Hand};
use crate::kafka_log::{broker, kafka, open, whole};

const VALUE_BYTES: usize = 20_000;
/// Of a batch: a few events fit, and a batch of the size that the producer makes does not.
const BATCH_BYTES_MAX: &str = "300000";
/// As many as make a batch that is too large, and one behind it that is not.
const EVENTS: usize = 55;

#[test]
fn what_was_refused_with_the_first_batch_of_a_producer_is_not_overtaken_by_the_second() {
    // GIVEN a topic that takes no large batches, and a broker that knows nothing of the producer
    const NAME: &str = "batches-first";
    let limit = [("max.message.bytes", BATCH_BYTES_MAX), ("retention.ms", "-1")];
    consumer::create_topic(&kafka().bootstrap(), NAME, 2, &limit).unwrap();
    let mut hand = Hand::open(broker());
    // WHEN events of one key come at once
    for number in 0..EVENTS {
        let mut event = Event::new(NAME, format!("{number:06}")).keyed("a");
        event.value = Some(format!("{number:06}").repeat(VALUE_BYTES / 6).into_bytes());
        hand.offer(&event).expect("room");
    }
    hand.settle();
    // THEN none of them has failed, each was published alone, and they are there in order
    assert_eq!(hand.failures, []);
    let read = whole(&mut *open(NAME, From::Beginning));
    let numbers: Vec<usize> = read
        .iter()
        .map(|entry| std::str::from_utf8(&entry.value.as_ref().unwrap()[..6]).unwrap())
        .map(|number| number.parse().unwrap())
        .collect();
    let mut first = numbers.clone();
    let mut seen = std::collections::BTreeSet::new();
    first.retain(|number| seen.insert(*number));
    assert_eq!(first, (0..EVENTS).collect::<Vec<_>>(), "{numbers:?}");
}

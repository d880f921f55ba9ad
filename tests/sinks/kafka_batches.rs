//! Tests with failed events of the Kafka client: whole batches, for one of them, and without the
//! time.

use std::collections::BTreeSet;

use walrelay::dead_letter::writer;
use walrelay::sink::log::ReadFrom;
use walrelay_harness::consumer;

use crate::sinks::kafka_log::{broker, open};
use crate::sinks::reading::whole;
use crate::sinks::section::Values;
use crate::sinks::test_relay::{Event, TestRelay, dead_letter_cause, dead_letter_writer};
use crate::support::shared_kafka;

/// When the transaction of every event here was committed.
const COMMITTED_UNIX_US: i64 = 1_700_000_000_000_000;
const VALUE_BYTES: usize = 20_000;
/// The limit of a batch: a few events fit, and a batch of the size that the producer makes
/// does not.
const BATCH_BYTES_MAX: &str = "300000";
/// As many as make a batch that is too large, and one behind it that is not.
const EVENTS: usize = 55;

#[test]
fn what_was_refused_with_the_first_batch_of_a_producer_is_not_overtaken_by_the_second() {
    // GIVEN a topic that takes no large batches, and a broker that knows nothing of the producer
    const NAME: &str = "batches-first";
    let limit = [("max.message.bytes", BATCH_BYTES_MAX), ("retention.ms", "-1")];
    consumer::create_topic(&shared_kafka().bootstrap(), NAME, 2, &limit).unwrap();
    let mut relay = TestRelay::open(broker());
    // GIVEN a producer for dead letters that is connected
    let address = "batches-first-dlq";
    consumer::create_topic(&shared_kafka().bootstrap(), address, 1, &[]).unwrap();
    let letter = Event { is_letter: true, ..Event::new(address, "letter").keyed("a") };
    relay.publish(&letter);
    relay.settle();
    // WHEN events of one key come at once
    for number in 0..EVENTS {
        let mut event = Event::new(NAME, format!("{number:06}")).keyed("a");
        event.value = Some(format!("{number:06}").repeat(VALUE_BYTES / 6).into_bytes());
        relay.offer(&event).expect("room");
    }
    // WHEN a dead letter of the key is behind them
    let letter = relay.publish(&letter);
    relay.settle();
    // THEN none of them has failed, they are there in order, and the letter came last
    assert_eq!(relay.failures, []);
    assert_eq!(relay.confirmed.last(), Some(&letter));
    assert_eq!(first_deliveries(NAME), (0..EVENTS).collect::<Vec<_>>());
}

/// The numbers of the events that are there, without repetitions.
fn first_deliveries(topic: &str) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let read = whole(&mut *open(topic, ReadFrom::Beginning)).into_iter();
    let numbers = read.map(|entry| {
        let value = entry.value.unwrap();
        std::str::from_utf8(&value[..6]).unwrap().parse().unwrap()
    });
    numbers.filter(|number| seen.insert(*number)).collect()
}

#[test]
fn batches_get_smaller_until_they_fit_where_the_cluster_does_not_say_what_does() {
    // GIVEN a topic whose segments are smaller than the batches that its configuration allows
    const NAME: &str = "batches-halved";
    const LARGE: usize = 150;
    let limits =
        [("max.message.bytes", "8000000"), ("segment.bytes", "1048576"), ("retention.ms", "-1")];
    consumer::create_topic(&shared_kafka().bootstrap(), NAME, 1, &limits).unwrap();
    let broker = Values::default()
        .set("brokers", shared_kafka().bootstrap())
        .set("properties.\"batch.size\"", 4_000_000)
        .set("properties.\"message.max.bytes\"", 8_000_000)
        .configure("kafka");
    let mut relay = TestRelay::open(broker);
    // WHEN events of one key come at once, one of which is larger than a segment
    for number in 0..300 {
        let mut event = Event::new(NAME, format!("{number:06}")).keyed("a");
        let copies = if number == LARGE { 200_000 } else { 10_000 };
        event.value = Some(format!("{number:06}").repeat(copies).into_bytes());
        relay.publish(&event);
    }
    relay.until("the large one has failed", |relay| !relay.failures.is_empty());
    relay.forget_refused();
    relay.reopen();
    relay.settle();
    // THEN it alone has failed, the others are there in order, and few sinks were lost
    let failed: Vec<usize> = relay.failures.iter().map(|(it, _)| *it as usize).collect();
    assert_eq!(failed, [LARGE]);
    assert_eq!(relay.failures[0].1.class, "kafka.message-batch-too-large");
    let expected: Vec<usize> = (0..300).filter(|number| *number != LARGE).collect();
    assert_eq!(first_deliveries(NAME), expected);
    assert!(relay.sinks_lost <= 4, "{} sinks lost", relay.sinks_lost);
}

#[test]
fn a_dead_letter_says_when_its_transaction_was_committed_and_a_record_when_it_was_published() {
    // GIVEN events that were taken in for topics that are missing
    let mut relay = TestRelay::open(broker());
    let mended = relay.publish(&Event::new("batches-mended", "1").keyed("a"));
    let buried = relay.publish(&Event::new("batches-never", "2").keyed("b"));
    relay.until("both have failed", |relay| relay.failures.len() == 2);
    // WHEN one is published after all, and the other is given up
    for name in ["batches-mended", "batches-dlq"] {
        consumer::create_topic(&shared_kafka().bootstrap(), name, 1, &[("retention.ms", "-1")])
            .unwrap();
    }
    let writer = dead_letter_writer("", "batches-dlq");
    relay.replace_with_dead_letter(buried, &writer, &dead_letter_cause("test.refused"));
    relay.retry(mended);
    relay.settle();
    // THEN the record has the time of its publish
    let read = whole(&mut *open("batches-mended", ReadFrom::Beginning));
    let times: Vec<i64> = read.iter().map(|entry| entry.written_unix_us).collect();
    assert!(times.len() == 1 && times[0] > COMMITTED_UNIX_US, "{times:?}");
    // AND the dead letter says when the transaction was committed
    let letters = whole(&mut *open("batches-dlq", ReadFrom::Beginning));
    let header = letters[0].headers.iter().find(|(name, _)| name == writer::COMMIT_TS).unwrap();
    assert_eq!(header.1, b"2023-11-14T22:13:20.000000Z");
}

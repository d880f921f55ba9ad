//! The kit's RabbitMQ side against a real broker: queues are read whole, confirms and alarms seen.

use std::time::{Duration, Instant};

use walrelay_harness::consumer::{Consumer, Mode};
use walrelay_harness::kit::{now_us, payload_hash};
use walrelay_harness::rabbit::{Outcome, Properties, Queue, Rabbit, Tap, Value};
use walrelay_harness::{HarnessError, RabbitMq, RabbitOptions};

use super::LIMIT;
use crate::support::shared_rabbitmq;

/// Exchange and queue of one name, bound for everything.
fn declared(name: &str, kind: Queue) -> Rabbit {
    let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
    rabbit.declare_exchange(name, "topic").unwrap();
    rabbit.declare_queue(name, kind).unwrap();
    rabbit.bind(name, name, "#").unwrap();
    rabbit
}

fn event(number: u64) -> (Properties, String) {
    let headers = vec![
        ("key".to_owned(), Value::from(format!("key-{}", number % 7).as_str())),
        ("lsn".to_owned(), Value::from(format!("1/{number:X}").as_str())),
    ];
    let properties = Properties {
        headers,
        delivery_mode: Some(2),
        message_id: Some(format!("id-{number}")),
        timestamp_s: Some(1_700_000_000),
        ..Properties::default()
    };
    (properties, format!("{{\"t\": {}, \"seq\": {number}}}", now_us()))
}

fn publish(rabbit: &mut Rabbit, to: (&str, &str), numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (properties, body) = event(number);
        rabbit.publish(to, &properties, body.as_bytes(), true);
    }
    rabbit.flush().unwrap();
}

/// Waits until the broker has answered all up to a tag; what it said.
fn outcomes(rabbit: &mut Rabbit, last: u64) -> Vec<Outcome> {
    let mut said = Vec::new();
    loop {
        let outcome = rabbit.outcome(LIMIT).unwrap().unwrap();
        let done = match outcome {
            Outcome::Acked(tag, _) | Outcome::Nacked(tag, _) => tag == last,
            Outcome::Returned(_) => false,
        };
        said.push(outcome);
        if done {
            return said;
        }
    }
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_queue_is_drained_whole_and_in_order() {
    for (name, kind) in [("drained_quorum", Queue::Quorum), ("drained_classic", Queue::Classic)] {
        // GIVEN more messages than are ever on their way at once
        let mut rabbit = declared(name, kind);
        publish(&mut rabbit, (name, "orders.eu"), 0..10_000);
        let count =
            || Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap().message_count(name).unwrap();
        while count() < 10_000 {}
        // WHEN drained THEN all are there once, with all that the oracle needs
        let records = rabbit.drain(name).unwrap();
        assert_eq!(records.len(), 10_000);
        for (number, record) in records.iter().enumerate() {
            assert_eq!(record.id, format!("id-{number}"));
            assert_eq!(record.key, format!("key-{}", number % 7));
            assert_eq!(record.lsn, Some((1 << 32) | number as u64));
            assert_eq!((record.offset, &*record.topic), (number as i64, "orders.eu"));
            assert_eq!(record.timestamp_ms, 1_700_000_000_000);
        }
        assert_eq!(rabbit.message_count(name).unwrap(), 0);
        // and again, on the same connection, nothing
        assert_eq!(rabbit.drain(name).unwrap(), []);
        rabbit.close();
    }
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_body_of_many_frames_comes_back_whole() {
    let mut rabbit = declared("whole", Queue::Classic);
    let body: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let (properties, _) = event(1);
    rabbit.publish(("whole", "k"), &properties, &body, true);
    rabbit.publish(("whole", "k"), &properties, &[], true);
    rabbit.flush().unwrap();
    while rabbit.message_count("whole").unwrap() < 2 {}
    let taken = rabbit.take("whole").unwrap();
    assert_eq!(payload_hash(&taken[0].body), payload_hash(&body));
    assert_eq!(taken[0].properties, properties);
    assert!(taken[1].body.is_empty());
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_live_consumer_counts_and_measures() {
    let mut rabbit = declared("live", Queue::Quorum);
    let url = shared_rabbitmq().amqp_url();
    assert!(Consumer::of_queues(&url, &["never_was"], Mode::Latency).is_err());
    publish(&mut rabbit, ("live", "k"), 0..1_000);
    let consumer = Consumer::of_queues(&url, &["live"], Mode::Latency).unwrap();
    publish(&mut rabbit, ("live", "k"), 1_000..3_000);
    consumer.wait_until(3_000, LIMIT).unwrap();
    let seen = consumer.stop();
    assert_eq!((seen.count, seen.latencies.count(), seen.records.len()), (3_000, 3_000, 0));
    // What was consumed has left the queue.
    assert_eq!(rabbit.message_count("live").unwrap(), 0);
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn refusals_returns_and_nacks_are_told_apart() {
    let mut rabbit = declared("refusing", Queue::Classic);
    // GIVEN a queue that takes three
    let full = [("x-max-length", Value::from(3)), ("x-overflow", Value::from("reject-publish"))];
    rabbit.declare_queue_with("full", Queue::Classic, &full).unwrap();
    rabbit.bind("full", "refusing", "few").unwrap();
    rabbit.unbind("refusing", "refusing", "#").unwrap();
    rabbit.confirm().unwrap();
    // WHEN a message has no queue THEN it comes back before its confirm
    publish(&mut rabbit, ("refusing", "nobody"), 0..1);
    let said = outcomes(&mut rabbit, 1);
    assert_eq!(said, [Outcome::Returned("id-0".into()), Outcome::Acked(1, false)]);
    // WHEN the queue is full THEN it is not taken
    publish(&mut rabbit, ("refusing", "few"), 1..5);
    let said = outcomes(&mut rabbit, 5);
    assert_eq!(said.last(), Some(&Outcome::Nacked(5, false)), "{said:?}");
    // WHEN the queue is gone THEN asking for it is refused, and the connection goes on
    rabbit.delete_queue("full").unwrap();
    let missing = rabbit.message_count("full");
    assert!(matches!(missing, Err(HarnessError::Amqp { code: 404, .. })), "{missing:?}");
    rabbit.purge("refusing").unwrap();
    rabbit.delete_exchange("refusing").unwrap();
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_tap_knows_when_the_broker_confirmed() {
    drop(declared("tapped", Queue::Classic));
    let tap = Tap::start(shared_rabbitmq().port()).unwrap();
    let mut rabbit = Rabbit::open(&tap.amqp_url()).unwrap();
    rabbit.confirm().unwrap();
    // GIVEN 500 routed, one that is not, and one repeated
    let from_us = now_us();
    publish(&mut rabbit, ("tapped", "k"), 0..500);
    publish(&mut rabbit, ("", "nobody"), 500..501);
    publish(&mut rabbit, ("tapped", "k"), 7..8);
    outcomes(&mut rabbit, 502);
    let until_us = now_us();
    // THEN each has its times, and what came back has no confirm
    let passed = tap.passed();
    assert_eq!(passed.len(), 502);
    for (at, passed) in passed.iter().enumerate() {
        assert!((from_us..=until_us).contains(&passed.published_us));
        let confirmed = passed.confirmed_us.is_some_and(|us| us >= passed.published_us);
        assert_eq!((confirmed, passed.returned), (at != 500, at == 500), "{passed:?}");
    }
    // and records take them over: each appearance its own publish, all the first confirm
    let mut records = rabbit.drain("tapped").unwrap();
    tap.stamp_published(&mut records);
    assert_eq!(records[500].timestamp_ms, passed[501].published_us / 1_000);
    assert_eq!(records[7].timestamp_ms, passed[7].published_us / 1_000);
    tap.stamp_confirmed(&mut records);
    assert_eq!(records[500].timestamp_ms, passed[7].confirmed_us.unwrap() / 1_000);
    // WHEN cut THEN both sides know
    tap.cut();
    assert!(rabbit.message_count("tapped").is_err());
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn an_alarm_blocks_publishers_until_it_is_cleared() {
    let broker = RabbitMq::start_with(&RabbitOptions {
        plugins: vec!["rabbitmq_auth_mechanism_ssl".into()],
        extra_conf: "max_message_size = 1000".into(),
    });
    let broker = broker.unwrap();
    let mut rabbit = Rabbit::open(&broker.amqp_url()).unwrap();
    rabbit.declare_queue("alarmed", Queue::Classic).unwrap();
    rabbit.confirm().unwrap();
    let alarms: [fn(&RabbitMq) -> walrelay_harness::Result<()>; 2] =
        [RabbitMq::raise_memory_alarm, RabbitMq::raise_disk_alarm];
    for (number, raise) in (0..).zip(alarms) {
        // WHEN an alarm is raised THEN a publish is not answered
        raise(&broker).unwrap();
        publish(&mut rabbit, ("", "alarmed"), number..number + 1);
        assert_eq!(rabbit.outcome(Duration::from_millis(500)).unwrap(), None);
        // and somebody who does not publish is
        let asked = Instant::now();
        while !broker.answers() {
            assert!(asked.elapsed() < LIMIT, "nobody is answered");
        }
        // WHEN it is cleared THEN it is
        broker.clear_alarms().unwrap();
        assert_eq!(rabbit.outcome(LIMIT).unwrap(), Some(Outcome::Acked(number + 1, false)));
    }
    // and the options are those of the node
    let (properties, _) = event(0);
    rabbit.publish(("", "alarmed"), &properties, &[0; 2_000], true);
    rabbit.flush().unwrap();
    assert!(matches!(rabbit.outcome(LIMIT), Err(HarnessError::Amqp { code: 406, .. })));
    let plugins = broker.eval("rabbit_plugins:active()").unwrap();
    assert!(plugins.contains("rabbitmq_auth_mechanism_ssl"), "{plugins}");
}

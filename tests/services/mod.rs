//! The part of the harness whose mistake would hide one of the relay: the time of a confirm. Mistakes of other parts let the
//! tests fail that use them.

use std::time::Duration;

use walrelay_harness::kit::now_us;
use walrelay_harness::rabbit::{Outcome, Properties, Queue, Rabbit, Tap, Value};

use crate::support::shared_rabbitmq;

const LIMIT: Duration = Duration::from_secs(60);

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

//! What only takes time makes no dead letter.

use std::time::{Duration, Instant};

use walrelay_harness::{Kafka, RabbitMq};

use super::fixture::{DeadLetterFixture, held, on_kafka, on_rabbitmq};
use crate::support::broker::Broker;
use crate::support::{LIMIT, machine, metric, shared_postgres, until, volume};

#[test]
fn a_kafka_that_is_down_for_long_under_load_makes_no_dead_letter() {
    down(Broker::Kafka(Kafka::start().unwrap()), "down_kafka");
}

#[test]
fn a_rabbitmq_that_is_down_for_long_under_load_makes_no_dead_letter() {
    down(Broker::RabbitMq(RabbitMq::start().unwrap()), "down_rabbitmq");
}

fn down(mut broker: Broker, name: &str) {
    let _machine = machine();
    // GIVEN a relay under load
    let case = DeadLetterFixture::new(shared_postgres(), &broker, name, "attempts_max = 2\n", "");
    let case = case.with_one_route();
    let began = Instant::now();
    let (mut relay, reader) = (case.relay(), case.site.reader());
    let (events, down, load) = volume((8_000, 15, 20), (30_000, 60, 75));
    let load = case.site.writers(events, Duration::from_secs(load));
    let writers = std::thread::spawn(move || load.run().unwrap());
    reader.wait_until(1_000, LIMIT);
    std::thread::sleep(broker.queue_age().saturating_sub(began.elapsed()));
    // WHEN the broker is away for longer than any retry
    broker.kill9();
    std::thread::sleep(Duration::from_secs(down));
    broker.start_again();
    writers.join().unwrap();
    // THEN nothing is lost, and nothing was given up
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.list(&["--state", "all"]).len(), 0);
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"dead_lettered\"}"), Some(0.0));
    let (verdict, _) = case.site.judge(&mut relay, reader);
    println!("{name}: {verdict}");
    // What was in flight at the kill may be there twice.
    verdict.assert_exact(events * 2 / 3);
}

#[test]
fn a_topic_that_is_missing_for_long_makes_no_dead_letter() {
    unbound(&on_kafka("unbound_kafka", "attempts_max = 1000\nbackoff_cap = \"2s\"\n", ""));
}

#[test]
fn a_route_that_is_unbound_for_long_makes_no_dead_letter() {
    unbound(&on_rabbitmq("unbound_rabbitmq", "attempts_max = 1000\nbackoff_cap = \"2s\"\n", ""));
}

fn unbound(case: &DeadLetterFixture) {
    let (name, lost) = (case.site.name.clone(), case.lost());
    let reader = case.site.reader();
    let mut relay = case.relay();
    // GIVEN events without a route, and some with one
    case.insert(&lost, 0..5, 0, 50);
    case.insert(&name, 5..10, 0, 1_000);
    let began = Instant::now();
    let retried = |at_least: f64| {
        until(&format!("{at_least} retries"), LIMIT, || {
            metric(&relay, "outbox_retries_total").filter(|retries| *retries >= at_least)
        })
    };
    let at_first = retried(1.0);
    // THEN the others flow past them
    reader.wait_until(1_000, LIMIT);
    // THEN each key is tried again and again, and the others flow still; no wait is longer than
    // two seconds
    let (unbound, tries_min) = volume((8, 3.0), (30, 10.0));
    std::thread::sleep(Duration::from_secs(unbound).saturating_sub(began.elapsed()));
    let retries = retried(at_first + 5.0 * tries_min);
    println!("{name}: {retries} retries");
    case.insert(&name, 5..10, 1_000, 1_000);
    reader.wait_until(2_000, LIMIT);
    assert_eq!(metric(&relay, "outbox_retry_exhaustions_total"), Some(0.0));
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"dead_lettered\"}"), Some(0.0));
    // WHEN the route is made THEN they arrive, in order, once
    case.site.open_route(&lost);
    let found = case.site.reader_of(&lost);
    case.site.wait_confirmed(&mut relay, LIMIT);
    case.judge(&lost, &held(found), &[]).assert_exact(0);
    case.judge(&name, &held(reader), &[]).assert_exact(0);
    assert_eq!(case.list(&["--state", "all"]).len(), 0);
}

#[test]
fn poison_waits_for_a_dead_letter_topic_that_is_away() {
    letters_away(&on_kafka("letters_away_kafka", "attempts_max = 2\n", ""));
}

#[test]
fn poison_waits_for_a_dead_letter_queue_that_is_away() {
    letters_away(&on_rabbitmq("letters_away_rabbitmq", "attempts_max = 2\n", ""));
}

fn letters_away(case: &DeadLetterFixture) {
    // GIVEN a relay whose dead-letter topic has gone
    let name = case.site.name.clone();
    let reader = case.site.reader();
    let mut relay = case.relay();
    case.site.remove_dead_letters();
    // WHEN an event cannot be published
    let (poison, before_its_end) = case.insert_before(&case.lost(), "k0", 0);
    case.insert(&name, 1..6, 1, 500);
    until("attempts to write the letter", LIMIT, || {
        metric(&relay, "outbox_dlq_publish_failed_total").filter(|failed| *failed >= 3.0)
    });
    // THEN the other keys flow, and the slot is held before it
    reader.wait_until(500, LIMIT);
    assert!(case.site.confirmed().unwrap() <= before_its_end);
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"dead_lettered\"}"), Some(0.0));
    // WHEN the topic is back THEN it flows
    case.must(&["init"]);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), [poison]);
    case.judge(&name, &held(reader), &[]).assert_exact(0);
}

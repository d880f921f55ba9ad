//! Tests of outages: an event that only takes time makes no dead letter.

use std::time::{Duration, Instant};

use walrelay_harness::{Broker, BrokerKind};

use super::fixture::{DeadLetterFixture, held};
use crate::support::{
    LIMIT, half_machine, metric, name_on, on_both_brokers, shared_postgres, status, until, volume,
};

on_both_brokers!(a_broker_that_is_down_for_long_under_load_makes_no_dead_letter, both in soak);

fn a_broker_that_is_down_for_long_under_load_makes_no_dead_letter(kind: BrokerKind) {
    // GIVEN a relay under load
    let (mut broker, name) = (Broker::start(kind).unwrap(), name_on(kind, "down"));
    let mut case =
        DeadLetterFixture::new(shared_postgres(), &broker, &name, "attempts_max = 2\n", "");
    // Every event has the fixture's own route, whatever its type.
    case.config.topic.clone_from(&name);
    broker.sync_declarations().unwrap();
    let _machine = half_machine();
    let (mut relay, reader) = (case.relay(), case.site.reader());
    let (events, down, load) = volume((4_000, 15, 20), (30_000, 60, 75));
    let load = case.site.writers(events, Duration::from_secs(load));
    let writers = std::thread::spawn(move || load.run().unwrap());
    reader.wait_until(1_000, LIMIT);
    // WHEN the broker is away for longer than any retry
    broker.kill9().unwrap();
    std::thread::sleep(Duration::from_secs(down));
    broker.start_again().unwrap();
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

on_both_brokers!(a_route_that_is_missing_for_long_makes_no_dead_letter, both in soak);

fn a_route_that_is_missing_for_long_makes_no_dead_letter(kind: BrokerKind) {
    let delivery = "attempts_max = 1000\nbackoff_cap = \"2s\"\n";
    let case = DeadLetterFixture::on(kind, "unbound", delivery, "");
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

on_both_brokers!(poison_waits_for_a_dead_letter_topic_that_is_missing, rabbitmq in soak);

fn poison_waits_for_a_dead_letter_topic_that_is_missing(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "letters_away", "attempts_max = 2\n", "");
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
    assert_eq!(status(&relay)["reason"]["code"], "dead_letter_unwritten");
    // WHEN the topic is back THEN it flows
    case.must(&["init"]);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), [poison]);
    case.judge(&name, &held(reader), &[]).assert_exact(0);
}

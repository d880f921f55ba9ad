//! Tests of outages: an event that only takes time makes no dead letter.

use std::time::Duration;

use walrelay_harness::{Broker, BrokerKind};

use super::fixture::DeadLetterFixture;
use crate::support::{
    LIMIT, half_machine, metric, name_on, on_both_brokers, shared_postgres, volume,
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

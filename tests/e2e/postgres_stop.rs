//! `pg_ctl stop -m fast` never hangs on the relay (G5), and what it interrupts is not lost.

use std::time::{Duration, Instant};

use walrelay_harness::load::Backlog;
use walrelay_harness::{Kafka, Postgres, PostgresOptions};

use crate::support::{LIMIT, Repeatable, Site, machine, metric, shared_kafka, until};

const HEALTHY_LIMIT: Duration = Duration::from_secs(5);
const SINK_DEAD_LIMIT: Duration = Duration::from_secs(15);

#[test]
fn a_fast_shutdown_is_fast_with_a_healthy_sink() {
    let _machine = machine();
    let _repeatable = Repeatable::new("e2e::postgres_stop");
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Site::new(&postgres, shared_kafka(), "postgres_stop");
    let (mut relay, consumer) = (site.relay(), site.consumer());
    // GIVEN an idle relay, WHEN Postgres stops, THEN soon
    let idle = postgres.stop_fast(HEALTHY_LIMIT).unwrap();
    postgres.start_again().unwrap();
    relay.wait_ready(LIMIT).unwrap();
    // GIVEN one under load, WHEN Postgres stops, THEN soon
    let load = site.writers(30_000, Duration::from_secs(10));
    let writers = std::thread::spawn(move || load.run().unwrap());
    consumer.wait_until(5_000, LIMIT).unwrap();
    let loaded = postgres.stop_fast(HEALTHY_LIMIT).unwrap();
    postgres.start_again().unwrap();
    writers.join().unwrap();
    // THEN the relay has lived through both and all is there, once
    let (verdict, _) = site.judge(&mut relay, consumer);
    println!("stopped in {idle:?} idle, {loaded:?} under load; {verdict}");
    verdict.assert_exact(0);
}

#[test]
fn a_fast_shutdown_ends_although_kafka_is_dead() {
    let _machine = machine();
    // GIVEN a window full of events whose Kafka was killed
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let mut kafka = Kafka::start().unwrap();
    let site = Site::new(&postgres, &kafka, "postgres_stop_dead");
    let window = 1_000;
    let mut config = site.config();
    config.extra = format!("[delivery]\nwindow_events_max = {window}\n");
    let mut relay = site.relay_with(config);
    site.insert_event("first", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    kafka.kill9().unwrap();
    Backlog::new(&site.url, 20_000).fill().unwrap();
    let full = || metric(&relay, "outbox_in_flight_events") == Some(f64::from(window));
    until("a full window", LIMIT, || full().then_some(()));
    // WHEN Postgres is told to stop
    let took = postgres.stop_fast(SINK_DEAD_LIMIT).unwrap();
    // THEN it does, and after a restart of both nothing is lost, and nothing repeated
    postgres.start_again().unwrap();
    kafka.start_again().unwrap();
    let recovered = Instant::now();
    let consumer = site.consumer();
    let (verdict, _) = site.judge(&mut relay, consumer);
    println!("stopped in {took:?}, caught up in {:?}; {verdict}", recovered.elapsed());
    verdict.assert_exact(0);
}

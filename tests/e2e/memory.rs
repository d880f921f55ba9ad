//! Memory is bounded by the window (G4), whatever a transaction or a broker does.

use std::time::{Duration, Instant};

use walrelay_harness::load::Backlog;
use walrelay_harness::relay::RelayProcess;
use walrelay_harness::stats::human_bytes;
use walrelay_harness::{Kafka, Postgres, PostgresOptions, proc};

use crate::support::{LIMIT, Site, machine, metric, shared_kafka, shared_postgres, until};

const WINDOW_BYTES: u64 = 64 << 20;
/// What the process may need beside its window.
const ALLOWANCE_BYTES: u64 = 40_000_000;
const FREEZE: Duration = Duration::from_secs(60);

fn assert_lean(relay: &RelayProcess) {
    let peak = proc::memory(relay.pid()).unwrap().peak_rss_bytes;
    println!("peak RSS {}", human_bytes(peak));
    assert!(peak < WINDOW_BYTES + ALLOWANCE_BYTES, "peak RSS {}", human_bytes(peak));
}

#[test]
fn a_transaction_of_a_million_rows_passes_through_a_small_process() {
    let _machine = machine();
    let site = Site::new(shared_postgres(), shared_kafka(), "memory_rows");
    let (mut relay, consumer) = (site.relay(), site.consumer());
    let rows = 1_000_000;
    Backlog { rows_per_transaction: rows, ..Backlog::new(&site.url, rows) }.fill().unwrap();
    let (verdict, _) = site.judge(&mut relay, consumer);
    assert_lean(&relay);
    println!("{verdict}");
    verdict.assert_exact(0);
}

#[test]
fn a_broker_frozen_for_a_minute_does_not_grow_the_process() {
    // GIVEN a relay whose Kafka stands still, and 100 MB to carry
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let kafka = Kafka::start().unwrap();
    let site = Site::new(&postgres, &kafka, "memory_freeze");
    let (mut relay, consumer) = (site.relay(), site.consumer());
    site.insert_event("first", 1);
    consumer.wait_until(1, LIMIT).unwrap();
    kafka.freeze().unwrap();
    let frozen = Instant::now();
    let payload_bytes = 8_000;
    Backlog { payload_bytes, ..Backlog::new(&site.url, 20_000) }.fill().unwrap();
    let held =
        || metric(&relay, "outbox_in_flight_bytes").is_some_and(|b| b >= WINDOW_BYTES as f64);
    until("a full window", LIMIT, || held().then_some(()));
    // WHEN it stands still for a minute
    until("the end of the minute", FREEZE * 2, || (frozen.elapsed() > FREEZE).then_some(()));
    kafka.thaw().unwrap();
    // THEN the process has not grown, and all arrives, once
    let (verdict, _) = site.judge(&mut relay, consumer);
    assert_lean(&relay);
    println!("{verdict}");
    verdict.assert_exact(0);
}

//! `pg_ctl stop -m fast` never hangs on the relay (G5), and what it interrupts is not lost.

use std::time::{Duration, Instant};

use walrelay_harness::load::Backlog;
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions};

use crate::support::{
    Fixture, LIMIT, half_machine, name_on, on_both_brokers, until, window_is_full,
};

const SINK_DEAD_LIMIT: Duration = Duration::from_secs(15);

on_both_brokers!(a_fast_shutdown_ends_although_the_broker_is_dead, rabbitmq in soak);

fn a_fast_shutdown_ends_although_the_broker_is_dead(kind: BrokerKind) {
    // GIVEN a window full of events whose broker was killed
    let mut broker = Broker::start(kind).unwrap();
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, &broker, &name_on(kind, "postgres_stop_dead"));
    broker.sync_declarations().unwrap();
    let _machine = half_machine();
    let mut relay = site.relay();
    site.insert_event("first", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    broker.kill9().unwrap();
    Backlog::new(&site.url, 20_000).fill().unwrap();
    until("a full window", LIMIT, || window_is_full(&relay).then_some(()));
    // WHEN Postgres is told to stop
    let took = postgres.stop_fast(SINK_DEAD_LIMIT).unwrap();
    // THEN it does, and after a restart of both nothing is lost, and nothing repeated
    postgres.start_again().unwrap();
    broker.start_again().unwrap();
    let recovered = Instant::now();
    let reader = site.reader();
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("stopped in {took:?}, caught up in {:?}; {verdict}", recovered.elapsed());
    verdict.assert_exact(0);
}

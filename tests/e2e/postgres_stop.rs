//! `pg_ctl stop -m fast` never hangs on the relay (G5), and what it interrupts is not lost. `-m smart` waits for
//! other sessions, and not for those of relays.

use std::time::{Duration, Instant};

use walrelay_harness::load::Backlog;
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions};

use crate::support::session::Session;
use crate::support::{
    Fixture, LIMIT, half_machine, name_on, on_both_brokers, start, state, wait_until,
    window_is_full,
};

const SINK_DEAD_LIMIT: Duration = Duration::from_secs(15);
/// A relay tries every 30 s whether Postgres stops. `pg_ctl` waits for 60 s.
const NOTICED_WITHIN: Duration = Duration::from_secs(40);
const SMART_LIMIT: Duration = Duration::from_secs(60);

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
    wait_until("a full window", || window_is_full(&relay));
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

#[test]
#[ignore = "soak"]
fn a_smart_shutdown_waits_for_no_relay() {
    // GIVEN a relay, another one that stands by, and a session of another program
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "postgres_stop_smart");
    let (mut relay, reader) = (site.relay(), site.reader());
    let mut second = start(site.config(), "postgres_stop_smart_second");
    wait_until("a standby", || state(&second) == "standby");
    let session = Session::open(&site.url).unwrap();
    let insert = |seq: u64| {
        let sql = "insert into outbox values (gen_random_uuid(), 'order', 'key', 'created', ";
        session.first_value(&format!("{sql} '{{\"seq\": {seq}}}')")).unwrap();
        reader.wait_until(seq, LIMIT);
    };
    insert(1);
    // WHEN Postgres is told to stop THEN the events of that session are published, also when relays know
    postgres.begin_stop_smart().unwrap();
    std::thread::sleep(NOTICED_WITHIN);
    insert(2);
    // WHEN the session ends THEN Postgres does
    drop(session);
    let took = postgres.wait_stopped(SMART_LIMIT).unwrap();
    // AND both relays go on afterwards
    postgres.start_again().unwrap();
    site.insert_event("key", 3);
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("stopped in {took:?}; {verdict}");
    verdict.assert_exact(0);
    assert!(second.is_running(), "{}", second.tail(20));
}

#[test]
#[ignore = "soak"]
fn a_smart_shutdown_without_other_sessions_ends_within_the_patience_of_pg_ctl() {
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "postgres_stop_smart_alone");
    let (mut relay, reader) = (site.relay(), site.reader());
    let second = start(site.config(), "postgres_stop_smart_alone_second");
    wait_until("a standby", || state(&second) == "standby");
    postgres.begin_stop_smart().unwrap();
    let took = postgres.wait_stopped(SMART_LIMIT).unwrap();
    postgres.start_again().unwrap();
    site.insert_event("key", 1);
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("stopped in {took:?}; {verdict}");
    verdict.assert_exact(0);
}

//! A copy of the data folder is put back: the same system and timeline, and other transactions where
//! the relay has read before. A relay that skipped them by position would lose them.

use std::time::Duration;

use walrelay_core::source::progress::TRACE_BYTES_MAX;
use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{BrokerKind, Postgres, PostgresOptions};

use crate::support::{Fixture, LIMIT, start, state, until, wait_looks};

const WITHIN: Duration = Duration::from_secs(10);
/// Rows that are written after the copy was made, and as many again twice after it was put back.
const ROWS: u64 = 100;

fn insert(site: &Fixture, what: &str, count: u64) {
    for seq in 1..=count {
        site.insert_event(what, seq);
    }
}

/// Puts back a copy from before the last rows that `relay` has published. `join` is done before
/// these rows, `leave` after them. Then so much is written that the WAL ends behind what was read.
/// Returns where the slot stood then.
fn roll_back<T>(
    postgres: &mut Postgres,
    site: &Fixture,
    relay: &mut RelayProcess,
    join: impl FnOnce() -> T,
    leave: impl FnOnce(&mut RelayProcess, &mut T),
) -> (Option<u64>, T) {
    insert(site, "before", 1);
    site.wait_confirmed(relay, LIMIT);
    postgres.stop_fast(WITHIN).unwrap();
    postgres.copy_data().unwrap();
    postgres.start_again().unwrap();
    relay.wait_ready(LIMIT).unwrap();
    let mut joined = join();
    insert(site, "first", ROWS);
    site.wait_confirmed(relay, LIMIT);
    leave(relay, &mut joined);
    postgres.crash().unwrap();
    postgres.put_copy_back().unwrap();
    postgres.start_again().unwrap();
    let before = site.confirmed();
    insert(site, "second", 2 * ROWS);
    (before, joined)
}

#[track_caller]
fn assert_stops(site: &Fixture, relay: &mut RelayProcess, before: Option<u64>) {
    // THEN it says what has happened, and the slot has not passed the other transactions
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 3, "{}", relay.tail(20));
    assert!(relay.said("slot.went-back"), "{}", relay.tail(20));
    // But for the few bytes by which a relay shows that it has the slot.
    let moved = site.confirmed().zip(before).map(|(now, before)| now - before);
    assert!(moved.is_some_and(|bytes| bytes <= TRACE_BYTES_MAX), "{moved:?}");
}

#[test]
#[ignore = "soak"]
fn transactions_of_another_history_are_not_skipped_by_a_living_relay() {
    // GIVEN a relay that has published what was committed after the copy
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "rollback_living");
    let mut relay = site.relay();
    // WHEN the copy is put back behind its back, and other transactions are committed
    let freeze = |relay: &mut RelayProcess, (): &mut ()| relay.freeze().unwrap();
    let (before, ()) = roll_back(&mut postgres, &site, &mut relay, || (), freeze);
    relay.thaw().unwrap();
    assert_stops(&site, &mut relay, before);
}

#[test]
#[ignore = "soak"]
fn transactions_of_another_history_are_not_skipped_by_a_relay_that_stood_by() {
    // GIVEN a relay that stood by while its peer published what was committed after the copy
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "rollback_standby");
    let mut relay = site.relay();
    let stand_by = || {
        let standby = start(site.config(), "rollback_standby_second");
        until("a standby", LIMIT, || (state(&standby) == "standby").then_some(()));
        standby
    };
    // WHEN both are away, the copy is put back, and other transactions are committed
    let leave = |relay: &mut RelayProcess, standby: &mut RelayProcess| {
        wait_looks(&site, 3);
        standby.freeze().unwrap();
        relay.kill9().unwrap();
    };
    let (before, mut standby) = roll_back(&mut postgres, &site, &mut relay, stand_by, leave);
    standby.thaw().unwrap();
    assert_stops(&site, &mut standby, before);
}

#[test]
fn a_copy_that_is_put_back_while_no_relay_runs_is_found_by_the_state_file() {
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "rollback_stopped");
    let mut config = site.config();
    config.extra = "[delivery]\nstate_file = \"state\"\n".to_owned();
    let mut relay = site.relay_with(config);
    insert(&site, "before", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    relay.kill9().unwrap();
    postgres.stop_fast(WITHIN).unwrap();
    postgres.copy_data().unwrap();
    postgres.start_again().unwrap();
    // GIVEN a relay that has seen the WAL of events from after the copy, and has ended
    insert(&site, "first", ROWS);
    relay.restart().unwrap();
    relay.wait_ready(LIMIT).unwrap();
    site.wait_confirmed(&mut relay, LIMIT);
    relay.kill9().unwrap();
    // WHEN the copy is put back THEN no start goes on, until that is acknowledged
    postgres.crash().unwrap();
    postgres.put_copy_back().unwrap();
    postgres.start_again().unwrap();
    for _ in 1..=2 {
        relay.restart().unwrap();
        assert_eq!(relay.wait_exit(LIMIT).unwrap(), 3, "{}", relay.tail(20));
        assert!(relay.said("slot.went-back"), "{}", relay.tail(20));
    }
}

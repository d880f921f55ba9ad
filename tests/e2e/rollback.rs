//! A copy of the data folder is put back: the same system and timeline, and other transactions where
//! the relay has read before. A relay that skipped them by position would lose them.

use std::time::Duration;

use walrelay_harness::{BrokerKind, Postgres, PostgresOptions};

use crate::support::{Fixture, LIMIT};

const WITHIN: Duration = Duration::from_secs(10);
/// Rows that are written after the copy was made.
const ROWS: u64 = 100;

fn insert(site: &Fixture, what: &str, count: u64) {
    for seq in 1..=count {
        site.insert_event(what, seq);
    }
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

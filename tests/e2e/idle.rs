//! An idle relay pins no WAL that others write.

use walrelay_harness::{Postgres, PostgresOptions};
use walrelay_measure::numbers;

use crate::support::{Fixture, query, shared_kafka, volume, wait_until};

const RETAINED_BYTES_MAX: u64 = 2 * (16 << 20);

#[test]
fn a_neighbours_writes_are_not_pinned_and_no_heartbeat_is_written() {
    // GIVEN an idle relay on a database whose neighbour writes
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, shared_kafka(), "idle");
    let mut relay = site.relay();
    let before = site.value("select pg_current_wal_lsn()");
    let tables = "select count(*)::text from pg_class where relkind = 'r' and oid > 16383";
    let tables_before = site.value(tables);
    let neighbour = postgres.url("postgres");
    query(&neighbour, "create table noise (text text)").unwrap();
    // A slot may let go only at the snapshots that Postgres logs: with a checkpoint, or every 15 s.
    let chunk = "insert into noise select repeat(md5(n::text), 30) from generate_series(1, 8000) n";
    let written = || {
        let sql = format!("select pg_wal_lsn_diff(pg_current_wal_lsn(), '{before}')::bigint::text");
        query(&neighbour, &sql).unwrap().unwrap().parse::<u64>().unwrap()
    };
    let retained = || {
        let sql = "select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint::text
                   from pg_replication_slots where slot_name = 'idle'";
        query(&neighbour, sql).unwrap().unwrap().parse::<u64>().unwrap()
    };
    let mut most = 0;
    let neighbour_bytes = volume(70_000_000, 200_000_000);
    while written() < neighbour_bytes {
        query(&neighbour, chunk).unwrap();
        query(&neighbour, "checkpoint").unwrap();
        // WHEN another chunk was written, THEN the slot lets go of the one before
        wait_until("the slot to follow", || retained() < RETAINED_BYTES_MAX / 2);
        most = most.max(retained());
    }
    println!("{} written, at most {} kept", numbers::bytes(written()), numbers::bytes(most));
    assert!(retained() < RETAINED_BYTES_MAX);
    // THEN it did so without writing anything
    assert_eq!(site.value(tables), tables_before);
    assert_eq!(site.value("select count(*)::text from outbox"), "0");
    assert!(relay.is_running());
}

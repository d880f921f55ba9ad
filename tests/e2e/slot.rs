//! A slot that somebody else touched: the relay stops with 3 and says so, it never skips on, until
//! somebody acknowledges that.

use std::process::Command;

use walrelay_harness::relay::RelayProcess;

use crate::support::{Fixture, LIMIT, shared_postgres, wait_until};

/// A relay that has carried an event, frozen, its walsender gone: whatever happens to the slot now
/// happens behind its back.
fn frozen(name: &str) -> (Fixture, RelayProcess) {
    let site = Fixture::shared(name);
    let mut relay = site.relay();
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    relay.freeze().unwrap();
    assert!(site.terminate_walsender());
    wait_until("the slot to be free", || site.slot_is_active() == Some(false));
    // An event that only this slot position knows of.
    site.insert_event("key", 2);
    (site, relay)
}

fn assert_stops(mut relay: RelayProcess, codes: &[&str]) -> RelayProcess {
    relay.thaw().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 3, "{}", relay.tail(20));
    assert!(codes.iter().any(|code| relay.said(code)), "{}", relay.tail(20));
    relay
}

#[test]
fn an_advanced_slot_stops_the_relay() {
    let (site, relay) = frozen("slot_advanced");
    site.execute("select pg_replication_slot_advance('slot_advanced', pg_current_wal_lsn())");
    let mut relay = assert_stops(relay, &["slot.moved"]);
    // WHEN a supervisor starts it again THEN it stays stopped
    relay.restart().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 3, "{}", relay.tail(20));
    assert!(relay.said("stopped since"), "{}", relay.tail(20));
    // WHEN somebody acknowledges that THEN it goes on from there
    let resumed = site.command(&site.config(), &["resume", "--yes"]).wait();
    resumed.assert_done().assert_says(&["slot.moved", "what was committed between"]);
    relay.restart().unwrap();
    relay.wait_ready(LIMIT).unwrap();
}

#[test]
fn a_dropped_slot_stops_the_relay() {
    let (site, relay) = frozen("slot_dropped_behind");
    site.execute("select pg_drop_replication_slot('slot_dropped_behind')");
    assert_stops(relay, &["slot.missing"]);
}

#[test]
fn a_recreated_slot_stops_the_relay() {
    let (site, relay) = frozen("slot_recreated");
    site.execute("select pg_drop_replication_slot('slot_recreated')");
    site.execute("select pg_create_logical_replication_slot('slot_recreated', 'pgoutput')");
    assert_stops(relay, &["slot.moved"]);
}

#[test]
fn a_slot_that_another_program_has_read_stops_the_relay() {
    let (site, relay) = frozen("slot_read");
    let (before, end) = (site.confirmed(), site.value("select pg_current_wal_lsn()"));
    let read = Command::new(shared_postgres().bin_dir().unwrap().join("pg_recvlogical"))
        .args(["-d", &site.url, "-S", "slot_read", "--start", "-f", "-", "-E", &end])
        .args(["-o", "proto_version=1", "-o", "publication_names=walrelay"])
        .output()
        .unwrap();
    assert!(read.status.success(), "{read:?}");
    wait_until("the slot to be free", || site.slot_is_active() == Some(false));
    assert!(site.confirmed() > before);
    assert_stops(relay, &["slot.moved"]);
}

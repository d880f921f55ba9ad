use serde_json::json;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);
const MB: u64 = 1 << 20;

fn slot(restart: u64, confirmed: u64) -> SlotFacts {
    let lsn = |megabytes: u64| Lsn::from_wire(megabytes * MB).to_string();
    serde_json::from_value(json!({
        "slot_name": "walrelay", "plugin": "pgoutput", "database": "app", "temporary": false,
        "active": true, "active_pid": 1, "wal_status": "reserved", "safe_wal_size": null,
        "restart_lsn": lsn(restart), "confirmed_flush_lsn": lsn(confirmed)
    }))
    .unwrap()
}

fn open(xid: u32, age_s: Option<u64>) -> Option<OldestTransaction> {
    let of = json!({ "xid": xid, "pid": 7, "name": "psql", "state": "idle in transaction",
        "database": "app", "age_ms": age_s.map(|age_s| age_s * 1000) });
    Some(serde_json::from_value(of).unwrap())
}

/// Looks at second 0, 5, 10, …; returns the seconds at which the slot was pinned, and by which xid.
fn watched(
    seconds: u64,
    look: impl Fn(u64) -> (SlotFacts, Option<OldestTransaction>),
) -> Vec<(u64, u32)> {
    let (start, mut watch) = (Instant::now(), PinWatch::new(LIMIT));
    let mut pinned = Vec::new();
    for second in (0..=seconds).step_by(5) {
        let (slot, oldest) = look(second);
        let pin = watch.observe(&slot, oldest, start + Duration::from_secs(second));
        pinned.extend(pin.map(|pin| (second, pin.by.xid)));
    }
    pinned
}

#[test]
fn an_old_transaction_that_the_confirmed_lsn_has_left_behind_pins() {
    let pinned = watched(70, |second| (slot(1, 1 + second), open(9, Some(second))));
    assert_eq!(pinned, [(60, 9), (65, 9), (70, 9)]);
    // AND its end ends it at once, also while another one is open
    let look = |second| (slot(1, 1 + second), open(if second < 70 { 9 } else { 10 }, Some(500)));
    assert_eq!(watched(80, look), [(60, 9), (65, 9)]);
}

#[test]
fn a_transaction_whose_age_is_hidden_is_as_old_as_it_was_seen() {
    let pinned = watched(65, |second| (slot(1, 1 + second), open(9, None)));
    assert_eq!(pinned, [(60, 9), (65, 9)]);
}

#[test]
fn without_a_cost_nothing_is_pinned() {
    // GIVEN no transaction; no WAL; a restart_lsn that moves; a relay that confirms nothing
    assert_eq!(watched(300, |second| (slot(1, 1 + second), None)), []);
    assert_eq!(watched(300, |second| (slot(1, 1), open(9, Some(1_000 + second)))), []);
    let moves = |second: u64| (slot(1 + second / 30, 20 + second), open(9, Some(second)));
    assert_eq!(watched(300, moves), []);
    assert_eq!(watched(300, |second| (slot(1, 50), open(9, Some(second)))), []);
    // AND transactions that follow each other, none of them old
    let young = |second: u64| (slot(1, 1 + second), open(second as u32 / 10, Some(second % 10)));
    assert_eq!(watched(300, young), []);
}

#[test]
fn the_sentence_has_the_sql_that_mends_it() {
    let pin = SlotPin {
        by: open(9, None).unwrap(),
        age: Duration::from_secs(99),
        restart_lsn: Lsn::from_wire(0x1_0000_0028),
        bytes: 7 * MB,
    };
    assert_eq!(
        pin.text(),
        "transaction of pid 7 (application_name psql, idle in transaction) is open for 99 s and \
         holds restart_lsn at 1/28: Postgres keeps 7.0 MiB of WAL that is confirmed; to end \
         it: SELECT pg_catalog.pg_terminate_backend(7)"
    );
}

//! Two relays, one slot: the second waits, says so, and takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use walrelay_harness::relay::get;

use crate::support::{Fixture, LIMIT, shared_postgres, start, state, until};

/// So many looks at the slot are a standby that has waited for a while.
const LOOKS: usize = 5;

#[test]
fn a_second_relay_stands_by_and_takes_over() {
    // GIVEN a relay that streams, and a second one
    let site = Fixture::shared("standby");
    let (mut first, reader) = (site.relay(), site.reader());
    let mut second = start(site.config(), "standby_second");
    let ready = |relay: &walrelay_harness::relay::RelayProcess| {
        get(relay.admin(), "/readyz", Duration::from_secs(2)).ok()
    };
    // THEN the second says that the slot is busy, and lives
    let told = until("a standby", LIMIT, || {
        ready(&second).filter(|answer| answer.body.contains("slot_busy"))
    });
    assert_eq!(told.status, 503);
    until("the state", LIMIT, || (state(&second) == "standby").then_some(()));
    assert!(second.is_running());
    assert_eq!(ready(&first).unwrap().status, 200);
    for seq in 1..=100 {
        site.insert_event("key", seq);
    }
    site.wait_confirmed(&mut first, LIMIT);
    assert!(second.is_running(), "{}", second.tail(20));
    // WHEN the first is killed with events coming
    first.kill9().unwrap();
    for seq in 101..=200 {
        site.insert_event("key", seq);
    }
    // THEN the second carries on
    second.wait_ready(LIMIT).unwrap();
    until("the state", LIMIT, || (state(&second) == "streaming").then_some(()));
    let (verdict, _) = site.judge(&mut second, reader);
    println!("{verdict}");
    verdict.assert_exact(100);
    // AND the first, started again, stands by in its turn
    first.restart().unwrap();
    until("a standby", LIMIT, || ready(&first).filter(|answer| answer.body.contains("slot_busy")));
}

#[test]
fn a_standby_is_quiet() {
    // GIVEN a relay that streams, and a second one whose preflight warns of its role
    let site = Fixture::shared("standby_quiet");
    let first = site.relay();
    let second = start(site.config(), "standby_quiet_second");
    // WHEN it has looked many times who holds the slot
    let mut looks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    until("many looks at the slot", LIMIT, || {
        let looked = site.value(
            "select string_agg(pid || ' ' || query_start, ',') from pg_stat_activity
             where datname = current_database() and query like '%relay of slot %'
             and pid <> pg_backend_pid()",
        );
        for (pid, at) in looked.split(',').filter_map(|look| look.split_once(' ')) {
            looks.entry(pid.to_owned()).or_default().insert(at.to_owned());
        }
        looks.values().any(|starts| starts.len() >= LOOKS).then_some(())
    });
    // THEN that was one connection beside those of the two slot watches, which ask the same
    assert!(looks.len() <= 3, "{looks:?}");
    // AND there was one warning, and no line in the server's log
    let said = std::fs::read_to_string(second.log_file()).unwrap();
    assert_eq!(said.matches("is a superuser").count(), 1, "{said}");
    assert_eq!(said.matches("standing by").count(), 1, "{said}");
    let refused = "replication slot \"standby_quiet\" is active for PID";
    assert_eq!(shared_postgres().recent_log().matches(refused).count(), 0);
    drop(first);
}

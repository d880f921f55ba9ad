//! Two relays, one slot: the second waits, and asks and says little.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Fixture, shared_postgres, start, wait_until};

/// So many looks at the slot are a standby that has waited for a while.
const LOOKS: usize = 5;

#[test]
fn a_standby_is_quiet() {
    // GIVEN a relay that streams, and a second one whose preflight warns of its role
    let site = Fixture::shared("standby_quiet");
    let first = site.relay();
    let second = start(site.config(), "standby_quiet_second");
    // WHEN it has looked many times who holds the slot
    let mut looks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    wait_until("many looks at the slot", || {
        let looked = site.value(
            "select string_agg(pid || ' ' || query_start, ',') from pg_stat_activity
             where datname = current_database() and query like '%relay of slot %'
             and pid <> pg_backend_pid()",
        );
        for (pid, at) in looked.split(',').filter_map(|look| look.split_once(' ')) {
            looks.entry(pid.to_owned()).or_default().insert(at.to_owned());
        }
        looks.values().any(|starts| starts.len() >= LOOKS)
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

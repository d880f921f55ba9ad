//! A process publishes none of the rows that another one may have by now: it was frozen, or others have
//! locked its rows, for longer than its lease.

use walrelay_harness::oracle;
use walrelay_harness::proxy::Proxy;
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use super::{config, polled_to_rabbitmq, wait_settled};
use crate::e2e::fencing::{EACH, KEYS, insert, stale, wait_nothing_in_flight};
use crate::support::session::Session;
use crate::support::{Fixture, LIMIT, metric, shared_rabbitmq, start, wait_until};

const WITHDRAWN: &str = "rows of its claims may be another process's by now";

/// A network in which a process can be cut off from its broker, and a table that is polled.
fn behind_proxy(name: &str) -> (Proxy, Fixture) {
    (Proxy::start(shared_rabbitmq().port()).unwrap(), polled_to_rabbitmq(name))
}

/// A process with rows in hand, of which its broker has seen nothing.
fn relay_with_rows(site: &Fixture, network: &Proxy, short: &RelayConfig) -> RelayProcess {
    let mut behind = short.clone();
    let target = behind.rabbitmq.as_mut().unwrap();
    let direct = format!(":{}", shared_rabbitmq().port());
    target.url = target.url.replace(&direct, &format!(":{}", network.port));
    let mut first = start(behind, &format!("{}_first", site.name));
    first.wait_ready(LIMIT).unwrap();
    insert(site, 1);
    wait_settled(site, LIMIT);
    hold_rows(site, network, &first, 1 + EACH);
    first
}

/// All is stored, and no key ends with an old event. What was in flight may be there twice.
#[track_caller]
fn assert_nothing_stale(site: &Fixture, first: &RelayProcess) {
    let (verdict, records) = site.compare(site.reader());
    let truth = oracle::read_truth(&site.url, "public.outbox").unwrap();
    assert_eq!(stale(&truth, &records), (0, 0), "{}", first.tail(30));
    verdict.assert_complete();
}

/// The process claims these rows, and the broker sees nothing of them.
fn hold_rows(site: &Fixture, network: &Proxy, first: &RelayProcess, from: u64) {
    network.silence();
    insert(site, from);
    let held = (KEYS * EACH) as f64;
    wait_until("rows in hand", || metric(first, "outbox_in_flight_events") == Some(held));
}

#[test]
fn rows_that_others_have_locked_are_given_back_before_another_process_can_have_them() {
    let (network, site) = behind_proxy("polling_locked");
    let first = relay_with_rows(&site, &network, &config(&site, "lease = \"2s\""));
    let other = Session::open(&site.url).unwrap();
    let lock =
        "SELECT count(*) FROM (SELECT FROM outbox WHERE status = 'in_progress' FOR UPDATE) r";
    let lapses = || first.tail(1_000).matches(WITHDRAWN).count();
    // GIVEN rows in hand, also those of a claim that was made after a lapse
    for round in 1..=2 {
        let before = lapses();
        // WHEN a transaction of others locks them for longer than the lease
        other.first_value(&format!("BEGIN; {lock}")).unwrap();
        // THEN they are withdrawn while they cannot be renewed
        wait_until("a lapse of the lease", || lapses() > before);
        let tail = first.tail(1_000);
        assert!(tail.matches("polling.claims-locked").count() >= round, "{}", first.tail(30));
        // AND published once they are free, and the broker is reached
        other.first_value("COMMIT").unwrap();
        network.cut();
        wait_settled(&site, LIMIT);
        if round == 1 {
            hold_rows(&site, &network, &first, 1 + 2 * EACH);
        }
    }
    assert_nothing_stale(&site, &first);
}

#[test]
fn a_locked_row_holds_up_its_claim_and_no_other() {
    let (network, site) = behind_proxy("polling_aside");
    let config = config(&site, "lease = \"60s\"\nworkers = 1\ninterval = \"20ms\"");
    // GIVEN rows in hand, of which another session locks one
    let first = relay_with_rows(&site, &network, &config);
    let other = Session::open(&site.url).unwrap();
    let lock = "SELECT count(*) FROM (SELECT FROM outbox WHERE status = 'in_progress' LIMIT 1 FOR UPDATE) r";
    other.first_value(&format!("BEGIN; {lock}")).unwrap();
    // WHEN the broker confirms them, and rows of other keys come
    network.cut();
    site.execute(
        "insert into outbox select gen_random_uuid(), 'order', 'other' || seq, 'created',
         jsonb_build_object('seq', seq) from generate_series(1, 20) seq",
    );
    // THEN the others are published
    let left =
        "select count(*) from outbox where aggregateid like 'other%' and status <> 'published'";
    wait_until("other keys", || site.value(left) == "0");
    // AND those of the claim are not free before the lock ends
    assert_eq!(site.value("select count(*) from outbox where status = 'pending'"), "0");
    assert_ne!(site.value("select count(*) from outbox where status = 'in_progress'"), "0");
    other.first_value("COMMIT").unwrap();
    wait_settled(&site, LIMIT);
    site.compare(site.reader()).0.assert_exact(0);
    drop(first);
}

#[test]
fn a_row_that_is_locked_for_longer_than_the_lease_is_not_published_behind_later_ones() {
    let (network, site) = behind_proxy("polling_long");
    // GIVEN rows in hand, of which another session locks the first of each key
    let first = relay_with_rows(&site, &network, &config(&site, "lease = \"2s\""));
    let other = Session::open(&site.url).unwrap();
    let lock = "SELECT count(*) FROM (SELECT FROM outbox o WHERE status = 'in_progress' AND position =
        (SELECT min(position) FROM outbox p WHERE p.status = 'in_progress' AND p.aggregateid = o.aggregateid) FOR UPDATE) r";
    other.first_value(&format!("BEGIN; {lock}")).unwrap();
    // WHEN they are confirmed, and the lock outlives their lease
    network.cut();
    other.first_value("SELECT pg_sleep(7)").unwrap();
    other.first_value("COMMIT").unwrap();
    // THEN no older row of a key is published behind a later one
    wait_settled(&site, LIMIT);
    assert_nothing_stale(&site, &first);
}

#[test]
fn a_frozen_process_publishes_nothing_behind_the_one_that_took_its_rows() {
    let (network, site) = behind_proxy("polling_fencing");
    let short = config(&site, "lease = \"2s\"");
    // GIVEN a process that is frozen with rows in hand, of which its broker has seen nothing
    let mut first = relay_with_rows(&site, &network, &short);
    first.freeze().unwrap();
    // WHEN another has taken them and published newer ones, and the first runs again
    let mut second = start(short, "polling_fencing_second");
    second.wait_ready(LIMIT).unwrap();
    insert(&site, 1 + 2 * EACH);
    wait_settled(&site, LIMIT);
    network.cut();
    first.thaw().unwrap();
    wait_nothing_in_flight(&first);
    // THEN nothing of it stands behind them
    assert_nothing_stale(&site, &first);
    // AND it goes on
    insert(&site, 1 + 3 * EACH);
    drop(second);
    wait_settled(&site, LIMIT);
    assert!(first.is_running(), "{}", first.tail(20));
}

#[test]
fn rows_that_a_new_primary_does_not_know_to_be_claimed_are_not_published_behind_the_next_process() {
    let (network, site) = behind_proxy("polling_lost");
    let long = config(&site, "lease = \"60s\"");
    // GIVEN a process with rows in hand, of which its broker has seen nothing
    let mut first = relay_with_rows(&site, &network, &long);
    // WHEN the server behind its connections is one that has not received its claims
    site.execute(
        "UPDATE outbox SET status = 'pending', locked_at = NULL, locked_by = NULL
         WHERE status = 'in_progress'",
    );
    site.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'walrelay%'",
    );
    // THEN it withdraws them
    wait_until("a withdrawal", || {
        assert!(first.is_running());
        first.tail(1_000).contains(WITHDRAWN)
    });
    assert!(first.tail(1_000).contains("polling.claims-gone"), "{}", first.tail(30));
    // WHEN another has taken them and published newer ones, and the first reaches the broker again
    let mut second = start(long, "polling_lost_second");
    second.wait_ready(LIMIT).unwrap();
    insert(&site, 1 + 2 * EACH);
    wait_settled(&site, LIMIT);
    network.cut();
    wait_nothing_in_flight(&first);
    // THEN nothing of it stands behind them
    assert_nothing_stale(&site, &first);
}

#[test]
fn a_stop_while_the_broker_is_silent_gives_the_rows_back_and_says_so() {
    let (network, site) = behind_proxy("polling_left");
    let mut config = config(&site, "lease = \"60s\"");
    config.extra = "[delivery]\ndrain_timeout = \"2s\"\n".into();
    let mut relay = relay_with_rows(&site, &network, &config);
    relay.sigterm().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 1, "{}", relay.tail(20));
    assert!(relay.tail(20).contains("stop.unsettled"), "{}", relay.tail(20));
    let held = site.value("SELECT count(*) FROM outbox WHERE status = 'in_progress'");
    assert_eq!(held, "0", "{}", relay.tail(20));
}

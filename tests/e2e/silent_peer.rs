//! A relay whose events another one has repeated, without confirming any of them to the slot.

use walrelay_harness::BrokerKind;
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::{Fixture, LIMIT, metric, on_both_brokers, start, until};

const KEYS: u64 = 50;
const EVENTS: u64 = 1_000;
/// The events of another key, so that the keys get no later event while the transaction lasts.
const REST: u64 = 4_000;

on_both_brokers!(a_peer_that_repeats_events_and_confirms_none_leaves_a_trace, rabbitmq in soak);

/// Without the position in its records no topic is looked at.
fn config(site: &Fixture, state_file: &str) -> RelayConfig {
    let mut config = site.config();
    config.extra =
        format!("[delivery]\n{state_file}window_events_max = 50\n[route.headers]\nlsn = \"-\"\n");
    config
}

fn passed_over(relay: &RelayProcess) -> Option<f64> {
    metric(relay, "outbox_events_known_total{source=\"state_file\"}")
}

fn a_peer_that_repeats_events_and_confirms_none_leaves_a_trace(kind: BrokerKind) {
    let site = Fixture::on(kind, "silent_peer");
    let confirmed = || until("the slot", LIMIT, || site.confirmed());
    let mut first = site.relay_with(config(&site, "state_file = \"state\"\n"));
    let reader = site.reader();
    // GIVEN a relay that is killed within a transaction, when its first keys are complete
    site.execute(&format!(
        "begin;
         insert into outbox select gen_random_uuid(), 'order', 'key' || n % {KEYS}, 'created',
             jsonb_build_object('seq', n / {KEYS} + 1)
         from generate_series(0, {EVENTS} - 1) n;
         insert into outbox select gen_random_uuid(), 'order', 'rest', 'created',
             jsonb_build_object('seq', n) from generate_series(1, {REST}) n;
         commit"
    ));
    reader.wait_until(EVENTS + 100, LIMIT);
    first.kill9().unwrap();
    let held = reader.count();
    assert!(held < EVENTS + REST, "it was done before it was killed");
    let before = confirmed();
    // WHEN another one repeats some of its events, and is killed before it has confirmed any
    let mut second = start(config(&site, ""), &format!("{}_second", site.name));
    second.wait_ready(LIMIT).unwrap();
    reader.wait_until(held + EVENTS / 4, LIMIT);
    second.kill9().unwrap();
    assert!(reader.count() < held + EVENTS, "it has repeated too much");
    let traced = confirmed() - before;
    // THEN the first one believes its marks no more: each key ends with its latest event
    first.restart().unwrap();
    first.wait_ready(LIMIT).unwrap();
    let (verdict, _) = site.judge(&mut first, reader);
    println!("{verdict}");
    verdict.assert_complete();
    assert!(traced > 0 && traced <= 32, "the other one has confirmed {traced} bytes");
    assert_eq!(passed_over(&first), Some(0.0));
}

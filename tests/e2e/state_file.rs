//! Tests of the state file: an event that the broker confirmed before a `kill -9` is not published
//! again by the next process.
//!
//! The file says how many marks were written. An event is marked when it is confirmed and not when it
//! is passed over: with more marks than events a marked event was published again.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayProcess;

use crate::support::{Fixture, LIMIT, metric, on_both_brokers, until, wait_until};

const EVENTS: u64 = 6_000;
const KEYS: u64 = 50;
const KILLS: u64 = 4;
/// Small, so that the broker confirms while most of a transaction is still to come.
const WINDOW_EVENTS: u64 = 200;
/// The offset of the word that counts the marks.
const WRITTEN_OFFSET: u64 = 8 * 8;

on_both_brokers!(what_was_confirmed_before_a_kill_is_not_repeated, rabbitmq in soak);

/// A relay with a state file, and with nothing else that tells what was published: for want of their
/// positions events are not looked for in their topic.
fn relay(site: &Fixture) -> RelayProcess {
    let mut config = site.config();
    config.extra = format!(
        "[delivery]\nstate_file = \"state\"\nwindow_events_max = {WINDOW_EVENTS}\n[route.headers]\nlsn = \"-\"\n"
    );
    site.relay_with(config)
}

fn marks(site: &Fixture) -> u64 {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("relays").join(&site.name);
    let mut word = [0; 8];
    File::open(folder.join("state")).unwrap().read_exact_at(&mut word, WRITTEN_OFFSET).unwrap();
    u64::from_ne_bytes(word)
}

fn passed_over(relay: &RelayProcess) -> Option<u64> {
    metric(relay, "outbox_events_known_total{source=\"state_file\"}").map(|count| count as u64)
}

fn what_was_confirmed_before_a_kill_is_not_repeated(kind: BrokerKind) {
    let site = Fixture::on(kind, "marked");
    let (mut relay, reader) = (relay(&site), site.reader());
    // GIVEN one transaction, of which the slot knows nothing before its end
    site.insert_transaction(0, EVENTS, KEYS);
    // WHEN the relay is killed within it, again and again
    for kill in 1..=KILLS {
        let wanted = kill * EVENTS / (KILLS + 1);
        wait_until("some confirms", || marks(&site) >= wanted);
        relay.kill9().unwrap();
        let marked = marks(&site);
        assert!(marked < EVENTS, "it was done before it was killed");
        relay.restart().unwrap();
        // THEN the next one passes over all that was marked
        relay.wait_ready(LIMIT).unwrap();
        until("what was marked", LIMIT, || (passed_over(&relay)? == marked).then_some(()));
    }
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("{verdict}");
    assert!(marks(&site) <= EVENTS, "marked events were published again");
    // What was in flight is repeated, and nothing else.
    verdict.assert_exact(KILLS * WINDOW_EVENTS);
}

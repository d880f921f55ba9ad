//! SIGTERM: everything settles, Postgres knows it, and the next process repeats nothing.

use std::time::Duration;

use rustix_signal::{cont, stop};
use walrelay_harness::load::Backlog;

use crate::support::{LIMIT, Repeatable, Site, machine, until};

const STOPS: u32 = 5;
const EXIT_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_sigterm_under_load_repeats_nothing() {
    let _machine = machine();
    let _repeatable = Repeatable::new("e2e::stop");
    // GIVEN a relay under load
    let site = Site::shared("stop_under_load");
    let (mut relay, consumer) = (site.relay(), site.consumer());
    let load = site.writers(40_000, Duration::from_secs(15));
    let writers = std::thread::spawn(move || load.run().unwrap());
    // WHEN it is stopped again and again, each time while events are on their way
    for _ in 0..STOPS {
        consumer.wait_until(consumer.count() + 3_000, LIMIT).unwrap();
        relay.sigterm().unwrap();
        assert_eq!(relay.wait_exit(EXIT_LIMIT).unwrap(), 0, "{}", relay.tail(20));
        relay.restart().unwrap();
    }
    writers.join().unwrap();
    // THEN all is there, once
    let (verdict, _) = site.judge(&mut relay, consumer);
    println!("{STOPS} stops: {verdict}");
    verdict.assert_exact(0);
}

#[test]
fn a_sigterm_inside_a_transaction_of_100_000_rows_repeats_nothing() {
    // GIVEN a relay with a small window in the middle of a large transaction: its sender stands
    let site = Site::shared("stop_inside");
    let mut config = site.config();
    config.extra = "[delivery]\nwindow_events_max = 500\n".into();
    let (mut relay, consumer) = (site.relay_with(config), site.consumer());
    let rows = 100_000;
    let sender: u32 = site
        .value("select active_pid::text from pg_replication_slots where slot_name = 'stop_inside'")
        .parse()
        .unwrap();
    Backlog { rows_per_transaction: rows, ..Backlog::new(&site.url, rows) }.fill().unwrap();
    until("the first event", LIMIT, || (consumer.count() > 0).then_some(()));
    stop(sender);
    let seen = consumer.count();
    assert!(seen < rows, "the transaction was over before it could be interrupted");
    // WHEN it is told to stop there
    relay.sigterm().unwrap();
    until("the relay hears it", LIMIT, || relay.said("settling what is in flight").then_some(()));
    assert!(relay.is_running(), "{}", relay.tail(20));
    cont(sender);
    // THEN it finishes the transaction first
    assert_eq!(relay.wait_exit(EXIT_LIMIT).unwrap(), 0, "{}", relay.tail(20));
    relay.restart().unwrap();
    let (verdict, _) = site.judge(&mut relay, consumer);
    println!("stopped after {seen} of {rows}: {verdict}");
    verdict.assert_exact(0);
}

/// A walsender belongs to nobody here, so it is signalled by its pid.
mod rustix_signal {
    use std::process::Command;

    pub(super) fn stop(pid: u32) {
        send("STOP", pid);
    }

    pub(super) fn cont(pid: u32) {
        send("CONT", pid);
    }

    fn send(signal: &str, pid: u32) {
        let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
        assert!(status.success(), "kill -s {signal} {pid}");
    }
}

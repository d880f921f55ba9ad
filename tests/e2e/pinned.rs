//! A transaction that keeps `restart_lsn` from moving is named, with the SQL that ends it.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::BrokerKind;
use walrelay_harness::proc::signal;
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::session::Session;
use crate::support::{Fixture, LIMIT, metric, own_postgres, status, until, wait_until};

/// How old a transaction must be: less than the 15 s after which Postgres writes a record of running
/// transactions, which only a restart_lsn that stands for another reason would show.
const PINNED_AFTER: &str = "2s";

fn pinned_by(relay: &RelayProcess) -> Value {
    status(relay)["slot"]["pinned_by"].take()
}

/// Writes and confirms WAL until the slot is pinned.
fn wait_pinned(site: &Fixture, relay: &RelayProcess, kind: &str) -> Value {
    until(&format!("pinned by a {kind}"), LIMIT, || {
        site.execute("insert into other select repeat('x', 1000) from generate_series(1, 300)");
        Some(pinned_by(relay)).filter(|pin| pin["kind"] == kind)
    })
}

#[test]
fn an_old_transaction_and_a_prepared_one_are_named_until_they_end() {
    // GIVEN a relay whose role may not read statistics, and a transaction that has written
    let postgres = own_postgres(&[("max_prepared_transactions", "2")]);
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "pinned");
    site.execute(
        "create table other (t text); create role relay login replication;
         grant select on outbox to relay",
    );
    let config = site.config();
    let url = config.url.replace("postgres@", "relay@");
    let source_extra = format!("pinned_after = \"{PINNED_AFTER}\"\nwatch_interval = \"200ms\"\n");
    let relay = site.relay_with(RelayConfig { url, source_extra, ..config });
    let batch = Session::open(&site.url).unwrap();
    let write = "set application_name = 'batch'; begin; insert into other values ('secret')";
    batch.first_value(write).unwrap();
    let pid = site.value("select pid from pg_stat_activity where application_name = 'batch'");
    // WHEN WAL grows THEN its backend is named
    let pin = wait_pinned(&site, &relay, "transaction");
    assert_eq!((pin["pid"].to_string(), pin["name"].as_str()), (pid.clone(), Some("batch")));
    let mend = format!("SELECT pg_catalog.pg_terminate_backend({pid})");
    let text = pin["text"].as_str().unwrap();
    assert!(text.contains(&mend) && !text.contains("secret"), "{text}");
    assert!(pin["age_seconds"].as_u64().is_some_and(|age| age >= 2), "{pin}");
    assert!(metric(&relay, "outbox_slot_pinned_seconds") >= Some(2.0));
    assert!(relay.said("a transaction holds restart_lsn") && relay.said(&mend));
    // AND `check` and `slot show` name it
    let superuser = RelayConfig {
        source_extra: format!("pinned_after = \"{PINNED_AFTER}\"\n"),
        ..site.config()
    };
    let check = site.command(&superuser, &["check"]).wait();
    assert!(check.all().contains(&mend), "{}", check.all());
    let shown = site.command(&superuser, &["slot", "show"]).wait();
    assert!(shown.all().contains(&format!("transaction of pid {pid}")), "{}", shown.all());
    // WHEN it is prepared THEN that is named by its id
    batch.first_value("prepare transaction 'two-phase'").unwrap();
    let pin = wait_pinned(&site, &relay, "prepared_transaction");
    assert_eq!((&pin["pid"], pin["name"].as_str()), (&Value::Null, Some("two-phase")));
    let mend = "ROLLBACK PREPARED 'two-phase'";
    assert!(pin["text"].as_str().unwrap().contains(mend), "{pin}");
    // WHEN Postgres answers late THEN the log does not tell it again
    let backend = "select pid from pg_stat_activity
        where usename = 'relay' and backend_type = 'client backend'";
    let watched_by = site.value(backend).parse().unwrap();
    signal(watched_by, Signal::STOP).unwrap();
    wait_until("nothing is known", || pinned_by(&relay).is_null());
    signal(watched_by, Signal::CONT).unwrap();
    wait_pinned(&site, &relay, "prepared_transaction");
    let told = |line: &&str| line.contains("slot.pinned") && line.contains("two-phase");
    assert_eq!(relay.tail(1_000).lines().filter(told).count(), 1, "{}", relay.tail(30));
    // WHEN it is rolled back THEN nothing is named any more
    site.execute("rollback prepared 'two-phase'");
    wait_until("no pin", || pinned_by(&relay).is_null());
    assert_eq!(metric(&relay, "outbox_slot_pinned_seconds"), Some(0.0));
    assert!(relay.said("no longer holds restart_lsn"), "{}", relay.tail(20));
}

#[test]
fn a_reader_pins_nothing() {
    // GIVEN an old snapshot that has written nothing
    let postgres = own_postgres(&[]);
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "pinned_reader");
    site.execute("create table other (t text)");
    let source_extra = format!("pinned_after = \"{PINNED_AFTER}\"\nwatch_interval = \"200ms\"\n");
    let mut relay = site.relay_with(RelayConfig { source_extra, ..site.config() });
    let restart =
        "select restart_lsn::text from pg_replication_slots where slot_name = 'pinned_reader'";
    let reader = Session::open(&site.url).unwrap();
    let read = "begin isolation level repeatable read; select count(*) from other";
    reader.first_value(read).unwrap();
    let before = site.value(restart);
    // WHEN WAL grows THEN restart_lsn moves all the same
    until("restart_lsn to move", Duration::from_secs(60), || {
        site.execute("insert into other select repeat('x', 1000) from generate_series(1, 300)");
        site.execute("checkpoint");
        site.wait_confirmed(&mut relay, LIMIT);
        (site.value(restart) != before).then_some(())
    });
    assert_eq!(pinned_by(&relay), Value::Null);
    reader.first_value("commit").unwrap();
}

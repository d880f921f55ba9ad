//! Slots that are missing, lost, or somebody else's.

use std::time::Duration;

use serde_json::{Value, json};
use walrelay_harness::relay::get;
use walrelay_harness::{Postgres, PostgresOptions};

use crate::support::faults::{CliFixture, keys};
use crate::support::{LIMIT, own_postgres, until, wait_until};

#[test]
fn a_slot_that_was_dropped_is_not_made_again_in_silence() {
    let scene = CliFixture::waiting("slot_dropped");
    scene.sql("SELECT pg_drop_replication_slot('slot_dropped')");
    let words = [
        "replication slot slot_dropped does not exist",
        "walrelay init",
        "events written since it vanished are not in the new one",
    ];
    scene.assert_refused(3, "slot.missing", &words);
    assert_eq!(scene.slot_state(), "");
}

#[test]
fn a_lost_slot_is_told_and_the_way_out_works() {
    let postgres = own_postgres(&[("max_slot_wal_keep_size", "1MB"), ("max_wal_size", "32MB")]);
    let scene = CliFixture::on(&postgres, "slot_lost");
    scene.walrelay(&["init"]).assert_done();
    scene.make_topic(&scene.topic(), 1);
    scene.insert("1", "{}");
    // GIVEN more WAL than the slot may keep
    for _ in 0..4 {
        scene.sql("SELECT pg_logical_emit_message(false, 'filler', 'x'), pg_switch_wal()");
    }
    scene.sql("CHECKPOINT");
    // Preflight and the watch may both be the first to see it.
    let words = ["slot slot_lost", "(wal_removed)", "walrelay slot drop", "max_slot_wal_keep_size"];
    scene.assert_refused(3, "slot.lost", &words);
    scene.walrelay(&["check"]).assert_says(&["✗ slot slot_lost is lost", "[slot.lost]"]);
    scene.walrelay(&["slot", "show"]).assert_done().assert_says(&["wal_status lost"]);
    let words = ["slot slot_lost is lost", "walrelay slot drop slot_lost && walrelay slot create"];
    scene.walrelay(&["slot", "create"]).assert_fault(3, "slot.lost", &words);
    // WHEN the user follows the hint THEN the relay runs again
    scene.walrelay(&["slot", "drop", "slot_lost", "--yes"]).assert_done();
    scene.walrelay(&["slot", "create"]).assert_done();
    scene.insert("2", "{}");
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["2"]);
}

#[test]
fn a_slot_that_nobody_reads_is_told_its_time_before_it_is_lost() {
    let settings = vec![("idle_replication_slot_timeout".to_owned(), "1h".to_owned())];
    let options = PostgresOptions { settings, version: Some(18), ..PostgresOptions::default() };
    let postgres = Postgres::start(options).unwrap();
    let mut scene = CliFixture::on(&postgres, "slot_idle");
    let admin = scene.choose_admin();
    scene.walrelay(&["init"]).assert_done();
    scene.make_topic(&scene.topic(), 1);
    // GIVEN a relay that reads it THEN no time is counted
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    let idle = until("the slot in /status", LIMIT, || {
        let answer = get(admin, "/status", Duration::from_secs(5)).ok()?;
        let status: Value = serde_json::from_str(&answer.body).ok()?;
        let is_read = status["state"] == "streaming" && status["slot"]["active"] == true;
        is_read.then(|| status["slot"]["idle_timeout"].clone())
    });
    let none = json!({ "timeout_seconds": 3600, "idle_seconds": null, "left_seconds": null, "text": null });
    assert_eq!(idle, none);
    scene.walrelay(&["slot", "show"]).assert_done().assert_says(&["idle_left_seconds -"]);
    relay.stop();
    // GIVEN the shortest time, and no reader
    scene.sql("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'");
    scene.sql("SELECT pg_reload_conf()");
    wait_until("the setting", || scene.sql("SHOW idle_replication_slot_timeout") == "1s");
    let text = "Postgres invalidates it at a checkpoint, with all that it has not delivered \
                (idle_replication_slot_timeout is 1 s)";
    scene.walrelay(&["check"]).assert_done().assert_says(&["nobody has read slot slot_idle", text]);
    scene.walrelay(&["slot", "show"]).assert_done().assert_says(&["idle_timeout_seconds 1"]);
    scene.insert("1", "{}");
    // WHEN it is over, at a checkpoint
    wait_until("the slot to be invalidated", || {
        scene.sql("CHECKPOINT");
        let reason = "SELECT invalidation_reason FROM pg_replication_slots";
        scene.sql(reason) == "idle_timeout"
    });
    let words = [
        "slot slot_idle is lost (idle_timeout)",
        "walrelay slot drop",
        "ALTER SYSTEM SET idle_replication_slot_timeout = 0",
    ];
    let refused = scene.assert_refused(3, "slot.lost", &words);
    assert!(!refused.all().contains("max_slot_wal_keep_size"), "{refused}");
}

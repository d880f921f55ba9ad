//! The slot's row against a real slot, and the age against a clock that is an argument.

use super::*;
use crate::testing;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_slot_is_seen_as_it_moves() {
    let (client, settings) = testing::logical().database("watched").await;
    assert_eq!(slot_state(&client, "watched").await.unwrap().slot, None);
    testing::prepare(&client, &settings).await;
    client.batch_execute("SET idle_session_timeout = '10min'").await.unwrap();
    let query = SlotQuery::prepare(&client, "watched").await.unwrap();
    let limit = client.query_one("SHOW idle_session_timeout", &[]).await.unwrap();
    assert_eq!(limit.get::<_, &str>(0), "0", "a watch interval may be longer");
    let look = async || {
        let state = query.run(&client).await.unwrap();
        let slot = state.own_slot().unwrap().clone();
        (state, slot)
    };
    let (first, slot) = look().await;
    assert_eq!(slot.wal_status.as_deref(), Some("reserved"));
    assert_eq!((slot.active, slot.active_pid, slot.safe_wal_size), (false, None, None));
    assert_eq!((&first.holder, first.in_recovery), (&None, false));
    assert!(!slot.is_lost() && first.retained_bytes(&slot) >= Some(first.lag_bytes(&slot)));

    // WHEN WAL is written THEN lag and retained WAL grow by it
    client
        .batch_execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 5000))")
        .await
        .unwrap();
    let (second, later) = look().await;
    assert_eq!(later.confirmed_flush, slot.confirmed_flush);
    assert!(second.lag_bytes(&later) >= first.lag_bytes(&slot) + 5000);
    assert!(second.retained_bytes(&later) >= first.retained_bytes(&slot).map(|it| it + 5000));

    // WHEN it is confirmed THEN the slot follows
    let advance =
        format!("SELECT pg_replication_slot_advance('watched', '{}')", second.current_lsn);
    client.batch_execute(&advance).await.unwrap();
    assert!(look().await.1.confirmed_flush > later.confirmed_flush);

    // WHEN its statistics are reset THEN the count of decoded transactions is no longer used
    let start = ServerStart::default();
    let decoded = async || query.run(&client).await.unwrap().held(&start).unwrap().decoded;
    assert!(decoded().await.is_some());
    client.batch_execute("SELECT pg_stat_reset_replication_slot('watched')").await.unwrap();
    assert_eq!(decoded().await, None);

    client.batch_execute("SELECT pg_drop_replication_slot('watched')").await.unwrap();
    assert_eq!(query.run(&client).await.unwrap().slot, None);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn who_holds_the_slot_is_told_with_its_name() {
    let server = testing::logical();
    let (client, _) = server.database("slot_held").await;
    let holder = server.connect("postgres", "slot_held").await;
    let sql = "SET application_name = 'other';
        SELECT pg_create_logical_replication_slot('slot_held', 'pgoutput', true)";
    holder.batch_execute(sql).await.unwrap();
    let pid = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let (held, other) = ("slot_held", SlotHolder { pid, application: "other".into(), peer: false });
    let state = slot_state(&client, held).await.unwrap();
    assert_eq!(state.holder, Some(other.clone()));
    assert_eq!(state.slot.unwrap().idle_ms, None, "it is read");
    // WHEN its role and its name are ours THEN it is a peer
    client.batch_execute("SET application_name = 'other'").await.unwrap();
    let peer = SlotHolder { peer: true, ..other };
    assert_eq!(slot_state(&client, held).await.unwrap().holder, Some(peer));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_idle_timeout_does_not_apply_to_a_synchronized_slot() {
    let (client, settings) = testing::logical().database("slot_synced").await;
    testing::prepare(&client, &settings).await;
    let mut slot = slot_state(&client, "slot_synced").await.unwrap().slot.unwrap();
    (slot.idle_timeout_ms, slot.idle_ms, slot.synced) = (Some(60_000), Some(1), Some(false));
    assert!(slot.idle_timeout().is_some());
    (slot.synced, slot.in_recovery) = (Some(true), true);
    assert_eq!(slot.idle_timeout(), None);
    // WHEN the standby is promoted THEN it applies, though the slot still says that it was synchronized
    slot.in_recovery = false;
    assert!(slot.idle_timeout().is_some());
}

#[test]
fn a_slot_without_a_position_is_being_made_or_synchronized() {
    let state = |synced: Option<bool>| -> SlotState {
        let slot = json!({
            "slot_name": "s", "plugin": "pgoutput", "database": "app", "temporary": true,
            "active": true, "active_pid": 7, "confirmed_flush_lsn": null, "restart_lsn": "0/10",
            "wal_status": "reserved", "synced": synced,
        });
        let state = json!({
            "in_recovery": synced.is_some(), "current_lsn": "0/20", "database": "app",
            "slot": slot, "has_peer": false, "decoded_is_reset": false, "at_unix_us": 0,
        });
        serde_json::from_value(state).unwrap()
    };
    let made = state(None).slot.unwrap();
    assert!(made.is_being_made() && !made.is_half_synchronized());
    // WHEN a standby synchronizes it THEN no session of a command makes it
    let state = state(Some(true));
    let synced = state.slot.as_ref().unwrap();
    assert!(synced.is_half_synchronized() && !synced.is_being_made());
    let lines = field_lines(state.fields().unwrap());
    for line in ["temporary            true", "confirmed_flush_lsn  -", "lag_bytes            -"] {
        assert!(lines.contains(&format!("{line}\n")), "{lines}");
    }
}

#[test]
fn the_age_counts_from_the_last_move() {
    let (start, mut age) = (Instant::now(), RestartAge::default());
    let at = |seconds| start + Duration::from_secs(seconds);
    let (one, two) = (Lsn::from_wire(1), Lsn::from_wire(2));
    assert_eq!(age.observe(one, at(0)), Duration::ZERO);
    assert_eq!(age.observe(one, at(5)), Duration::from_secs(5));
    assert_eq!(age.observe(one, at(9)), Duration::from_secs(9));
    assert_eq!(age.observe(two, at(10)), Duration::ZERO);
    // A slot that was made anew stands further back: that is a move too.
    assert_eq!(age.observe(one, at(11)), Duration::ZERO);
    assert_eq!(age.observe(one, at(12)), Duration::from_secs(1));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_crash_that_the_postmaster_outlives_begins_another_run() {
    let server = testing::alone();
    let (client, settings) = server.database("crashed").await;
    testing::prepare(&client, &settings).await;
    // Postgres saves the slot now, and not when it moves again.
    let advance = "SELECT pg_logical_emit_message(true, 'x', 'x');
        SELECT pg_replication_slot_advance('crashed', pg_current_wal_lsn())";
    client.batch_execute(&format!("{advance}; CHECKPOINT")).await.unwrap();
    client.batch_execute(advance).await.unwrap();
    let look = async |client: &Client| {
        let start = "SELECT pg_postmaster_start_time()::text, pg_backend_pid()";
        let row = client.query_one(start, &[]).await.unwrap();
        let started = ServerStart::from(row.get::<_, &str>(0));
        let held = slot_state(client, "crashed").await.unwrap().held(&started).unwrap();
        (row.get::<_, i32>(1), held)
    };
    let other = server.connect("postgres", "crashed").await;
    let (pid, before) = look(&client).await;
    let (_, again) = look(&client).await;
    assert_eq!(again.run, before.run);
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    let client = server.connect_again("postgres", "crashed", other).await;
    let (_, after) = look(&client).await;
    assert_eq!(after.run.start, before.run.start);
    assert!(after.confirmed_flush < before.confirmed_flush, "{after:?} {before:?}");
    assert_ne!(after.run, before.run);
}

#[test]
fn a_slot_on_a_standby_is_a_copy_or_that_of_a_former_primary() {
    let slot = |synced: bool, in_recovery: bool| -> SlotFacts {
        serde_json::from_value(json!({
            "slot_name": "s", "plugin": "pgoutput", "database": "app", "temporary": false,
            "active": false, "active_pid": null, "confirmed_flush_lsn": "0/20", "restart_lsn": "0/10",
            "wal_status": "reserved", "failover": true, "synced": synced, "in_recovery": in_recovery,
        }))
        .unwrap()
    };
    for (synced, in_recovery, is_own, is_copy) in [
        (false, false, false, false),
        // The flag stays after a promotion.
        (true, false, false, false),
        (false, true, true, false),
        (true, true, false, true),
    ] {
        let slot = slot(synced, in_recovery);
        assert_eq!((slot.is_own_on_standby(), slot.is_copy_on_standby()), (is_own, is_copy));
    }
}

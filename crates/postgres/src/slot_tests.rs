//! The slot's life, and every SQLSTATE that has a meaning.

use walrelay_core::source::progress::OwnPositions;

use super::*;
use crate::slot_state::{SlotFacts, field_lines};
use crate::testing;

async fn row(client: &Client, name: &str) -> Option<SlotFacts> {
    slot_state(client, name).await.unwrap().slot
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn made_shown_and_dropped() {
    let (client, settings) = testing::logical().database("slot_life").await;
    assert!(row(&client, "slot_life").await.is_none());
    // GIVEN no publication WHEN a slot is asked for THEN it is refused: publication first, always
    let fault = create(&client, &settings, false).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("publication.missing", Exit::Source));
    assert!(fault.mend.starts_with("walrelay init --no-slot"), "{}", fault.mend);
    assert!(row(&client, "slot_life").await.is_none());

    client.batch_execute("CREATE PUBLICATION slot_life").await.unwrap();
    let lsn = create(&client, &settings, false).await.unwrap();
    client.batch_execute("CREATE TABLE some_wal ()").await.unwrap();
    let state = slot_state(&client, "slot_life").await.unwrap();
    let slot = state.slot.as_ref().unwrap();
    assert_eq!(slot.confirmed_flush, lsn);
    let lag = state.lag_bytes(slot);
    assert!(lag > 0 && state.retained_bytes(slot) >= Some(lag));
    let fields = state.fields().unwrap();
    for (name, value) in [
        ("plugin", "pgoutput".into()),
        ("database", "slot_life".into()),
        ("confirmed_flush_lsn", lsn.to_string().into()),
        ("wal_status", "reserved".into()),
        ("lag_bytes", lag.into()),
        ("active_pid", serde_json::Value::Null),
    ] {
        assert!(fields.contains(&(name, value)), "{name} in {fields:?}");
    }
    let table = field_lines(fields);
    assert!(table.contains("wal_status           reserved\n"), "{table}");
    assert!(table.contains("active_pid           -\n"), "{table}");

    let fault = create(&client, &settings, false).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("slot.exists", Exit::Slot));
    drop(&client, "slot_life").await.unwrap();
    let fault = drop(&client, "slot_life").await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("slot.missing", Exit::Slot));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn failover_slots_need_17() {
    let (client, settings) = testing::logical().database("slot_failover").await;
    client.batch_execute("CREATE PUBLICATION slot_failover").await.unwrap();
    let sql = "SELECT current_setting('server_version_num')::int";
    let version: i32 = client.query_one(sql, &[]).await.unwrap().get(0);
    let made = create(&client, &settings, true).await;
    if version >= KNOWS_FAILOVER {
        made.unwrap();
        let sql = "SELECT failover FROM pg_replication_slots WHERE slot_name = 'slot_failover'";
        assert!(client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0));
    } else {
        let fault = made.unwrap_err();
        assert_eq!((fault.code, fault.exit), ("slot.failover", Exit::Usage));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_slot_in_use_is_never_dropped() {
    // GIVEN a slot that a session holds: a temporary slot is active for as long as it lives
    let server = testing::logical();
    let (client, _) = server.database("slot_active").await;
    let holder = server.connect("postgres", "slot_active").await;
    let sql = "SELECT pg_create_logical_replication_slot('slot_active', 'pgoutput', true),
                      pg_backend_pid()";
    let pid: i32 = holder.query_one(sql, &[]).await.unwrap().get(1);
    let fault = drop(&client, "slot_active").await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("slot.active", Exit::Slot));
    assert!(fault.what.contains(&format!("pid {pid}")), "{}", fault.what);
    assert!(fault.mend.contains(&format!("pg_terminate_backend({pid})")), "{}", fault.mend);
    assert!(row(&client, "slot_active").await.is_some());
    // THEN the server's own refusal, when someone was faster, is read the same way
    let raced = client.batch_execute("SELECT pg_drop_replication_slot('slot_active')").await;
    assert_eq!(slot_refused(&raced.unwrap_err(), "slot_active", &[]), fault);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_slot_of_another_database_is_neither_dropped_nor_taken_for_ones_own() {
    let server = testing::logical();
    let (client, settings) = server.database("slot_elsewhere").await;
    client.batch_execute("CREATE PUBLICATION slot_elsewhere").await.unwrap();
    // GIVEN the slot of a relay that reads another database
    let other = server.connect("postgres", "postgres").await;
    let make = "SELECT pg_create_logical_replication_slot('slot_elsewhere', 'pgoutput')";
    other.batch_execute(make).await.unwrap();
    for fault in [
        check_drop(&client, "slot_elsewhere").await.unwrap_err(),
        drop(&client, "slot_elsewhere").await.unwrap_err(),
    ] {
        assert_eq!((fault.code, fault.exit), ("slot.database", Exit::Slot));
        let what = "slot slot_elsewhere belongs to database postgres, not to slot_elsewhere: another relay may read it";
        assert_eq!(fault.what, what);
        assert!(fault.mend.contains("the URL of database postgres"), "{}", fault.mend);
    }
    let fault = create(&client, &settings, false).await.unwrap_err();
    assert_eq!(fault.code, "slot.database");
    assert!(fault.mend.contains("choose another name in source.slot"), "{}", fault.mend);
    // WHEN the command has the URL of that database THEN it drops the slot
    drop(&other, "slot_elsewhere").await.unwrap();
    assert!(row(&client, "slot_elsewhere").await.is_none());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn no_slot_free_names_those_in_use() {
    let (client, settings) = testing::one_slot().database("slot_full").await;
    let taken = "SELECT pg_create_physical_replication_slot('someone')";
    client.batch_execute(taken).await.unwrap();
    client.batch_execute("CREATE PUBLICATION slot_full").await.unwrap();
    let fault = create(&client, &settings, false).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("slot.none-free", Exit::Slot));
    assert!(fault.what.contains("max_replication_slots") && fault.what.contains("someone"));
    assert!(fault.mend.contains("pg_drop_replication_slot"), "{}", fault.mend);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn without_logical_wal_or_right_there_is_no_slot() {
    let (client, settings) = testing::replica_level().database("slot_replica").await;
    client.batch_execute("CREATE PUBLICATION slot_replica").await.unwrap();
    let fault = create(&client, &settings, false).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("source.wal-level", Exit::Source));
    assert!(fault.mend.contains("wal_level = 'logical'"), "{}", fault.mend);

    let server = testing::logical();
    let (client, settings) = server.database("slot_denied").await;
    let sql = "CREATE ROLE slotless LOGIN; CREATE PUBLICATION slot_denied";
    client.batch_execute(sql).await.unwrap();
    let slotless = server.connect("slotless", "slot_denied").await;
    let fault = create(&slotless, &settings, false).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("source.role", Exit::Source));
    assert!(fault.mend.contains("REPLICATION"), "{}", fault.mend);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_slot_is_advanced_to_what_is_confirmed_and_never_elsewhere() {
    let (client, settings) = testing::logical().database("slot_advance").await;
    testing::prepare(&client, &settings).await;
    let identity = "SELECT system_identifier::text, pg_current_wal_flush_lsn()
        FROM pg_control_system()";
    client.batch_execute("CREATE TABLE some_wal (); SELECT pg_switch_wal()").await.unwrap();
    let found = client.query_one(identity, &[]).await.unwrap();
    let (system, end): (String, Lsn) =
        (found.get(0), Lsn::from_wire(found.get::<_, PgLsn>(1).into()));
    let at = || async { row(&client, "slot_advance").await.unwrap().confirmed_flush };
    let before = at().await;
    let server = ServerStart::from("a");
    let own = OwnPositions { found: before, ..OwnPositions::default() };
    let refusal = |slot: &HeldSlot| own.exclude(slot.confirmed_flush).then_some("another relay");
    let advance = async |name, to, system: &str, timeline| {
        super::advance(&client, name, &server, to, (system, timeline), refusal).await
    };
    let to = |to, system, timeline| advance("slot_advance", to, system, timeline);
    // GIVEN a position of another system, of another timeline, or beyond the WAL
    let beyond = Lsn::from_wire(end.to_wire() + (1 << 40));
    for elsewhere in [
        to(end, "1", 1).await,
        to(end, &system, 2).await,
        to(beyond, &system, 1).await,
        advance("no_such_slot", end, &system, 1).await,
    ] {
        assert!(matches!(elsewhere.unwrap(), Advance::NotOurs(_)));
        assert_eq!(at().await, before);
    }
    // WHEN it is one of the slot's own THEN it gets there, and never back
    assert_eq!(to(end, &system, 1).await.unwrap(), Advance::Done);
    assert_eq!(at().await, end);
    assert_eq!(to(before, &system, 1).await.unwrap(), Advance::Done);
    assert_eq!(at().await, end);
    // WHEN another relay has left it where no record ends THEN it stays there
    client.batch_execute("CREATE TABLE more_wal (); SELECT pg_switch_wal()").await.unwrap();
    let by_another = Lsn::from_wire(end.to_wire() + 3);
    assert_eq!(to(by_another, &system, 1).await.unwrap(), Advance::Done);
    let later = Lsn::from_wire(end.to_wire() + 8);
    assert!(matches!(to(later, &system, 1).await.unwrap(), Advance::NotOurs(_)));
    assert_eq!(at().await, by_another);
}

use super::*;
use crate::testing;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn outboxes_partitions_and_other_tables_are_told_by_object_id() {
    let (client, settings) = testing::logical().database("catalog").await;
    let made = "CREATE SCHEMA s; CREATE TABLE other ();
        CREATE TABLE outbox (id int) PARTITION BY RANGE (id);
        CREATE TABLE s.half PARTITION OF outbox DEFAULT PARTITION BY RANGE (id);
        CREATE TABLE s.leaf PARTITION OF s.half DEFAULT;
        SELECT pg_current_xact_id()";
    client.batch_execute(made).await.unwrap();
    let sql = "SELECT 'other'::pg_catalog.regclass::pg_catalog.oid, 'outbox'::pg_catalog.regclass::pg_catalog.oid, 's.leaf'::pg_catalog.regclass::pg_catalog.oid,
        pg_snapshot_xmax(pg_current_snapshot())::pg_catalog.text::bigint";
    let row = client.query_one(sql, &[]).await.unwrap();
    let (other, outbox, leaf): (u32, u32, u32) = (row.get(0), row.get(1), row.get(2));
    let next_xid = u32::try_from(row.get::<_, i64>(3)).unwrap();
    let catalog = read(&client, &settings).await.unwrap();
    let mut found: Vec<_> =
        catalog.outboxes.iter().map(|(_, _, name, at)| (&name[..], *at)).collect();
    found.sort_unstable();
    assert_eq!(found, [("half", 0), ("leaf", 0), ("outbox", 0)]);
    for oid in [outbox, leaf] {
        assert!(catalog.outboxes.iter().any(|known| known.0 == oid));
    }
    assert!(catalog.has_partitions && catalog.has_table(other) && !catalog.has_table(1));
    // What has not begun is not in it.
    assert!(!catalog.is_after(next_xid + 1_000_000));
}

#[test]
fn a_catalog_is_known_to_be_after_what_had_ended_when_it_was_read() {
    let read_at = |xid| Catalog::read_before(xid, Vec::new());
    assert!(read_at(1000).is_after(999));
    assert!(!read_at(1000).is_after(1000), "it may have been running");
    assert!(!read_at(1000).is_after(1001));
    // GIVEN ids that have wrapped around
    assert!(read_at(5).is_after(u32::MAX - 5));
    assert!(!read_at(u32::MAX - 5).is_after(5));
}

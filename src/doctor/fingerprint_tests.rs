//! What changes under a running relay.

use tokio_postgres::Client;

use super::*;
use crate::base::error::Exit;
use crate::source::testing;

async fn take(client: &Client, settings: &SourceSettings) -> PublicationFingerprint {
    PublicationFingerprint::take(client, settings, 150_000).await.unwrap()
}

#[tokio::test]
async fn harmless_changes_are_no_fault() {
    let (client, settings) = testing::logical().database("fp_harmless").await;
    testing::prepare(&client, &settings).await;
    let before = take(&client, &settings).await;
    assert_eq!(before, take(&client, &settings).await);
    client
        .batch_execute(
            "ALTER TABLE outbox ADD tenant text;
             CREATE TABLE other (); ALTER PUBLICATION fp_harmless ADD TABLE other;
             ALTER PUBLICATION fp_harmless DROP TABLE other;
             ALTER PUBLICATION fp_harmless SET TABLE outbox, other;
             ALTER TABLE outbox RENAME TO away; ALTER TABLE away RENAME TO outbox;
             COMMENT ON PUBLICATION fp_harmless IS 'x';",
        )
        .await
        .unwrap();
    client.batch_execute("VACUUM (FULL, FREEZE) pg_publication").await.unwrap();
    client.batch_execute("VACUUM (FULL, FREEZE) pg_publication_rel").await.unwrap();
    let after = take(&client, &settings).await;
    assert_ne!(before, after);
    assert_eq!(before.change(&after, &settings), None);
}

#[tokio::test]
async fn whatever_could_hold_back_an_event_is_a_fault() {
    let (client, settings) = testing::logical().database("fp_harmful").await;
    testing::prepare(&client, &settings).await;
    for (change, undo, code) in [
        (
            "ALTER PUBLICATION fp_harmful SET (publish = 'delete')",
            "ALTER PUBLICATION fp_harmful SET (publish = 'insert')",
            "publication.insert",
        ),
        (
            "ALTER TABLE outbox RENAME payload TO body",
            "ALTER TABLE outbox RENAME body TO payload",
            "table.column-missing",
        ),
        (
            "ALTER PUBLICATION fp_harmful DROP TABLE outbox",
            "ALTER PUBLICATION fp_harmful ADD TABLE outbox",
            "publication.table-missing",
        ),
        // Between two looks all is as before, and yet rows may be missing.
        (
            "ALTER PUBLICATION fp_harmful DROP TABLE outbox;
             ALTER PUBLICATION fp_harmful ADD TABLE outbox",
            "",
            "publication.recreated",
        ),
        (
            "DROP PUBLICATION fp_harmful;
             CREATE PUBLICATION fp_harmful FOR TABLE outbox WITH (publish = 'insert')",
            "",
            "publication.recreated",
        ),
        ("DROP PUBLICATION fp_harmful", "", "publication.missing"),
    ] {
        let before = take(&client, &settings).await;
        client.batch_execute(change).await.unwrap();
        let fault = before.change(&take(&client, &settings).await, &settings).unwrap();
        assert_eq!((fault.code, fault.exit), (code, Exit::Source), "{change}");
        assert!(!fault.mend.is_empty());
        client.batch_execute(undo).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_changed_and_put_back_is_a_fault() {
    let (client, mut settings) = testing::logical().database("fp_put_back").await;
    testing::prepare(&client, &settings).await;
    client.batch_execute("CREATE SCHEMA away; CREATE PUBLICATION p").await.unwrap();
    settings.publication = "p".into();
    let taken_out = "public.outbox was taken out of publication p and put back";
    let altered = "publication p was altered, once or more often";
    let dropped = "publication p was dropped and made again";
    // GIVEN a publication that covers the outbox by each of these
    for (made, changed, told) in [
        (
            "TABLE outbox",
            "ALTER PUBLICATION p DROP TABLE outbox; ALTER PUBLICATION p ADD TABLE outbox",
            taken_out,
        ),
        (
            "TABLE outbox",
            "ALTER PUBLICATION p SET TABLE outbox WHERE (type = 'x');
             ALTER PUBLICATION p SET TABLE outbox",
            taken_out,
        ),
        (
            "TABLE outbox",
            "ALTER PUBLICATION p SET (publish = 'delete');
             ALTER PUBLICATION p SET (publish = 'insert')",
            altered,
        ),
        (
            "ALL TABLES",
            "ALTER PUBLICATION p SET (publish_via_partition_root = true);
             ALTER PUBLICATION p SET (publish_via_partition_root = false)",
            altered,
        ),
        ("ALL TABLES", "ALTER PUBLICATION p RENAME TO q; ALTER PUBLICATION q RENAME TO p", altered),
        ("ALL TABLES", "DROP PUBLICATION p; CREATE PUBLICATION p FOR ALL TABLES", dropped),
        (
            "TABLES IN SCHEMA public",
            "ALTER PUBLICATION p DROP TABLES IN SCHEMA public;
             ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
            "schema public was taken out of publication p and put back",
        ),
        (
            "TABLES IN SCHEMA public",
            "ALTER TABLE outbox SET SCHEMA away; ALTER TABLE away.outbox SET SCHEMA public",
            "outbox was moved to another schema",
        ),
        (
            "TABLE outbox",
            "ALTER TABLE outbox RENAME TO before; CREATE TABLE outbox (LIKE before);
             ALTER PUBLICATION p ADD TABLE outbox",
            "public.outbox is another table now",
        ),
    ] {
        let known = KnownPublication::default();
        let make = format!("DROP PUBLICATION p; CREATE PUBLICATION p FOR {made}");
        client.batch_execute(&make).await.unwrap();
        // GIVEN two looks, by whoever has connected
        for _ in 0..2 {
            assert_eq!(known.compare("1", take(&client, &settings).await, &settings), None);
        }
        // WHEN it is changed and put back with no look in between
        client.batch_execute(changed).await.unwrap();
        // THEN it is told, but not of another database system
        assert_eq!(known.compare("2", take(&client, &settings).await, &settings), None);
        let fault = known.compare("1", take(&client, &settings).await, &settings).unwrap();
        assert_eq!((fault.code, fault.exit), ("publication.recreated", Exit::Source), "{changed}");
        assert!(fault.what.contains(told), "{changed}: {}", fault.what);
    }
}

#[tokio::test]
async fn only_the_outboxes_are_looked_at_however_they_are_covered() {
    let (client, mut settings) = testing::logical().database("fp_covered").await;
    client
        .batch_execute(
            "CREATE SCHEMA other; CREATE TABLE other.noise (id int);
             CREATE TABLE top (id int) PARTITION BY RANGE (id);
             CREATE TABLE outbox PARTITION OF top DEFAULT PARTITION BY RANGE (id);
             CREATE TABLE other.leaf PARTITION OF outbox DEFAULT;",
        )
        .await
        .unwrap();
    settings.outboxes[0].columns.payload = "id".into();
    // What the server's own view says of the same tables is the truth.
    let truth = "SELECT coalesce(string_agg(tablename, ' ' ORDER BY tablename), '')
        FROM pg_publication_tables WHERE pubname = 'fp_covered' AND tablename IN ('outbox', 'leaf')";
    for made in ["FOR ALL TABLES", "FOR TABLE top", "FOR TABLE outbox", "FOR TABLE other.leaf"]
        .into_iter()
        .chain([
            "FOR TABLES IN SCHEMA public",
            "FOR TABLES IN SCHEMA other",
            "FOR TABLE other.noise",
        ])
    {
        for via_root in [true, false] {
            let sql = format!(
                "CREATE PUBLICATION fp_covered {made} WITH (publish_via_partition_root = {via_root})"
            );
            client.batch_execute(&sql).await.unwrap();
            let publication = take(&client, &settings).await.published.publication.unwrap();
            let names: Vec<_> = publication.tables.iter().map(|it| it.name.as_str()).collect();
            let truth: String = client.query_one(truth, &[]).await.unwrap().get(0);
            assert_eq!(names.join(" "), truth, "{sql}");
            client.batch_execute("DROP PUBLICATION fp_covered").await.unwrap();
        }
    }
}

#[tokio::test]
async fn hostile_names_stay_names() {
    let (client, mut settings) = testing::logical().database("fp_names").await;
    settings.publication = "p\"; DROP TABLE x; --'\\".into();
    settings.outboxes[0].schema = "S 1\"".into();
    settings.outboxes[0].table = "out'box".into();
    let table = crate::source::init::table_sql(&settings.outboxes[0]).unwrap();
    client.batch_execute("CREATE SCHEMA \"S 1\"\"\"").await.unwrap();
    client.batch_execute(&table).await.unwrap();
    client.batch_execute(&crate::source::publication::create_sql(&settings)).await.unwrap();
    let now = take(&client, &settings).await;
    assert_eq!(now.change(&now, &settings), None);
    let literal = crate::source::quote::quote_literal(&settings.publication);
    for conforming in ["on", "off"] {
        let set = format!("SET standard_conforming_strings = {conforming}");
        client.batch_execute(&set).await.unwrap();
        let sql = format!("SELECT count(*) FROM pg_publication WHERE pubname={literal}");
        assert_eq!(client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    }
}

//! What changes under a running relay.

use tokio_postgres::Client;

use super::*;
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
             ALTER PUBLICATION fp_harmless SET (publish = 'insert, update');",
        )
        .await
        .unwrap();
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
async fn hostile_names_stay_names() {
    let (client, mut settings) = testing::logical().database("fp_names").await;
    settings.publication = "p\"; DROP TABLE x; --'\\".into();
    settings.outboxes[0].schema = "S 1\"".into();
    settings.outboxes[0].table = "out'box".into();
    let table = crate::source::init::table_sql(&settings.outboxes[0]).unwrap();
    client.batch_execute("CREATE SCHEMA \"S 1\"\"\"").await.unwrap();
    client.batch_execute(&table).await.unwrap();
    client.batch_execute(&create_sql(&settings)).await.unwrap();
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

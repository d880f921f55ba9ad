use tokio_postgres::Client;

use super::super::settings::PollingSettings;
use super::super::table_facts;
use super::*;
use crate::base::template::Template;
use crate::source::testing;

pub(crate) const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

/// The statements of the shipped table in a database.
pub(crate) async fn shipped_statements(client: &Client, source: &SourceSettings) -> Statements {
    let mut outbox = testing::outbox();
    outbox.columns.key = "event_key".into();
    outbox.route.key = Some(Template::column("event_key"));
    let facts = table_facts::gather(client, &outbox).await.unwrap().unwrap();
    Statements::of(&facts, source, &outbox, &PollingSettings::default())
}

/// A database with the shipped table, altered, and the statements of that table.
pub(crate) async fn statements_of(database: &str, alter: &str) -> (Client, Statements) {
    let (client, source) = testing::logical().database(database).await;
    client.batch_execute("DROP TABLE IF EXISTS public.outbox").await.unwrap();
    client.batch_execute(POLLING_SQL).await.unwrap();
    client.batch_execute(alter).await.unwrap();
    let statements = shipped_statements(&client, &source).await;
    (client, statements)
}

async fn backlog(client: &Client, statements: &Statements) -> (i64, f64) {
    let row = client.query_one(&statements.backlog, &[&100_i64]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_age_of_the_backlog_is_that_of_its_oldest_row_whatever_the_order() {
    let alter = "ALTER TABLE outbox ALTER created_at DROP NOT NULL";
    let (client, statements) = statements_of("polling_backlog", alter).await;
    assert_eq!(backlog(&client, &statements).await, (0, 0.0));
    // GIVEN a row without a time THEN nobody knows how old it is
    let insert = async |time: &str| {
        let sql = format!(
            "INSERT INTO outbox (event_key, payload, created_at) VALUES ('k', '{{}}', {time})"
        );
        client.batch_execute(&sql).await.unwrap();
    };
    insert("NULL").await;
    insert("'infinity'").await;
    let (rows, age) = backlog(&client, &statements).await;
    assert!(rows == 2 && age.is_nan(), "{rows} rows, {age} s");
    // WHEN others come, the oldest last THEN it counts
    insert("now() - interval '1 minute'").await;
    insert("now() - interval '1 hour'").await;
    let (rows, age) = backlog(&client, &statements).await;
    assert!(rows == 4 && (3_600.0..3_700.0).contains(&age), "{rows} rows, {age} s");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_claim_weighs_all_that_its_events_have() {
    let alter = "ALTER TABLE outbox ADD headers jsonb";
    let (client, statements) = statements_of("polling_weight", alter).await;
    // GIVEN rows whose headers are larger than their payloads, as they are and where they are compressed
    let insert = "INSERT INTO outbox (event_key, payload, headers)
        SELECT 'k', '{}', jsonb_build_object('h', repeat('x', size)) FROM unnest(ARRAY[600, 600, 600, 600000, 10]) size";
    client.batch_execute(insert).await.unwrap();
    for (claim, most, taken) in
        [("a", 1500_i64, 2_i64), ("b", 100_000, 1), ("c", 100, 1), ("d", 1500, 1)]
    {
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&claim, &100_i64, &most];
        client.execute(&statements.claim, &parameters).await.unwrap();
        let count = "SELECT count(*) FROM outbox WHERE locked_by = $1";
        assert_eq!(
            client.query_one(count, &[&claim]).await.unwrap().get::<_, i64>(0),
            taken,
            "{claim}"
        );
        client
            .batch_execute("UPDATE outbox SET status = 'published' WHERE status = 'in_progress'")
            .await
            .unwrap();
    }
}

use tokio_postgres::Client;

use super::super::settings::PollingSettings;
use super::super::table_facts;
use super::*;
use crate::base::template::Template;
use crate::source::testing;

const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

async fn backlog(client: &Client, statements: &Statements) -> (i64, f64) {
    let row = client.query_one(&statements.backlog, &[&100_i64]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_age_of_the_backlog_is_that_of_its_oldest_row_whatever_the_order() {
    let (client, source) = testing::logical().database("polling_backlog").await;
    client.batch_execute("DROP TABLE IF EXISTS public.outbox").await.unwrap();
    client.batch_execute(POLLING_SQL).await.unwrap();
    client.batch_execute("ALTER TABLE outbox ALTER created_at DROP NOT NULL").await.unwrap();
    let mut outbox = testing::outbox();
    outbox.columns.key = "event_key".into();
    outbox.route.key = Some(Template::column("event_key"));
    let facts = table_facts::gather(&client, &outbox).await.unwrap().unwrap();
    let statements = Statements::of(&facts, &source, &outbox, &PollingSettings::default());
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

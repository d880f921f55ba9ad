//! How the statements are planned by a real server that believes what is not so.

use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::statements::tests::statements_of;

const WAITING: u64 = 5_000;

/// Runs a statement; the most rows that a join of it looked at and threw away.
async fn thrown_away(client: &Client, statement: &str, types: &str, values: &str) -> u64 {
    let run = format!(
        "PREPARE tried {types} AS {statement};
         EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE tried ({values});
         DEALLOCATE tried"
    );
    let told = client.simple_query(&run).await.unwrap();
    let plan = told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    most(&serde_json::from_str(plan.unwrap()).unwrap())
}

fn most(node: &Value) -> u64 {
    match node {
        Value::Array(nodes) => nodes.iter().map(most).max().unwrap_or(0),
        Value::Object(parts) => {
            let loops = parts.get("Actual Loops").and_then(Value::as_u64).unwrap_or(1);
            let removed = parts.get("Rows Removed by Join Filter").and_then(Value::as_u64);
            (removed.unwrap_or(0) * loops).max(parts.values().map(most).max().unwrap_or(0))
        }
        _ => 0,
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn statistics_of_a_quiet_hour_make_no_statement_read_its_rows_again_and_again() {
    let alter = "ALTER TABLE outbox SET (autovacuum_enabled = off)";
    let (client, statements) = statements_of("polling_plans", alter).await;
    // GIVEN statistics from when all was published, and a burst since
    for sql in [
        "INSERT INTO outbox (event_key, payload, status)
         SELECT 'k' || n % 900, '{}', 'published' FROM generate_series(1, 20000) n",
        "VACUUM ANALYZE outbox",
        "INSERT INTO outbox (event_key, payload)
         SELECT 'k' || n % 900, '{}' FROM generate_series(1, 5000) n",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    let few = WAITING * 2;
    // WHEN rows are claimed, some beside others in hand, and settled THEN each is looked at once
    for claim in ["a", "b"] {
        let values = format!("'{claim}', {WAITING}, 8000000");
        let looked = thrown_away(&client, &statements.claim, "(text, int8, int8)", &values).await;
        assert!(looked <= few, "claim {claim}: {looked}");
        let taken = format!("SELECT count(*) FROM outbox WHERE locked_by = '{claim}'");
        assert_eq!(client.query_one(&taken, &[]).await.unwrap().get::<_, i64>(0), 500);
    }
    let ids = "(SELECT array_agg(id::text) FROM outbox WHERE locked_by = 'a')";
    let ids: String = client.query_one(&format!("SELECT {ids}::text"), &[]).await.unwrap().get(0);
    let reasons = ", array_fill(1, ARRAY[500]), array_fill('no'::text, ARRAY[500]), array_fill(9::int8, ARRAY[500])";
    for (statement, types, more) in [
        (&statements.noted, "(text, text[], int4[], text[], int8[])", reasons),
        (&statements.published, "(text, text[])", ""),
    ] {
        let values = format!("'a', '{ids}'{more}");
        let looked = thrown_away(&client, statement, types, &values).await;
        assert!(looked <= few, "{statement}: {looked}");
    }
    let done = "SELECT count(*) FROM outbox WHERE status = 'published' AND locked_by = 'a'";
    assert_eq!(client.query_one(done, &[]).await.unwrap().get::<_, i64>(0), 500);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn rows_that_were_freed_are_taken_back_unless_another_claim_has_one_of_the_key() {
    let (client, statements) = statements_of("polling_retaken", "").await;
    // GIVEN rows of claim a, some of them freed while their locks kept them from being renewed, and of
    // another key one that claim b has taken since
    client
        .batch_execute(
            "INSERT INTO outbox (event_key, payload, status, locked_by) VALUES
             ('x', '{}', 'pending', 'a'), ('x', '{}', 'in_progress', 'a'), ('x', '{}', 'published', 'a'),
             ('y', '{}', 'in_progress', 'b'), ('y', '{}', 'pending', 'a'), ('z', '{}', 'pending', 'a')",
        )
        .await
        .unwrap();
    let ids: Vec<String> = (1..=6).map(|id: u32| id.to_string()).collect();
    // WHEN a row is gone THEN another claim may have published and deleted it
    let with_gone: Vec<String> = (1..=7).map(|id: u32| id.to_string()).collect();
    let retaken = client.execute(&statements.retaken, &[&"a", &with_gone]).await.unwrap();
    assert_eq!(retaken, 0);
    let retaken = client.execute(&statements.retaken, &[&"a", &ids]).await.unwrap();
    let published = client.execute(&statements.published, &[&"a", &ids]).await.unwrap();
    assert_eq!((retaken, published), (2, 3));
    let left =
        "SELECT string_agg(id || status, ' ' ORDER BY id) FROM outbox WHERE status <> 'published'";
    let left: String = client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "4in_progress 5pending");
}

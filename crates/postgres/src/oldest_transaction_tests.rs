use serde_json::json;
use tokio_postgres::Client;

use super::*;
use crate::testing;

async fn oldest(client: &Client) -> OldestTransaction {
    oldest_transaction(client).await.unwrap().expect("a transaction is open")
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_oldest_transaction_with_an_id_is_found_whatever_the_rights_of_who_asks() {
    // GIVEN a server of its own with a reader, a writer that is open, and a younger one
    let server = testing::alone();
    let (client, _) = server.database("oldest").await;
    client
        .batch_execute("CREATE TABLE t (n int); CREATE ROLE relay LOGIN REPLICATION")
        .await
        .unwrap();
    assert_eq!(oldest_transaction(&client).await.unwrap(), None);
    let reader = server.connect("postgres", "oldest").await;
    reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").await.unwrap();
    assert_eq!(oldest_transaction(&client).await.unwrap(), None, "it has written nothing");
    let writer = server.connect("postgres", "oldest").await;
    let pid: i32 = writer.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    writer
        .batch_execute("SET application_name = 'batch'; BEGIN; INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let younger = server.connect("postgres", "oldest").await;
    younger.batch_execute("BEGIN; INSERT INTO t VALUES (2)").await.unwrap();
    // WHEN a superuser asks THEN it sees all of it
    let found = oldest(&client).await;
    assert_eq!((found.pid, found.state.as_deref()), (Some(pid), Some("idle in transaction")));
    assert!(found.age_ms.is_some());
    let title = format!("transaction of pid {pid} (application_name batch, idle in transaction)");
    assert_eq!(found.title(), title);
    assert_eq!(found.mend(), format!("SELECT pg_catalog.pg_terminate_backend({pid})"));
    // AND the relay's role sees who it is
    let relay = server.connect("relay", "oldest").await;
    let found = oldest(&relay).await;
    assert_eq!((found.pid, found.state, found.age_ms), (Some(pid), None, None));
    assert_eq!(found.name, "batch");
    // WHEN the writer prepares its transaction THEN that is the oldest, without a backend
    writer.batch_execute("PREPARE TRANSACTION 'it''s'").await.unwrap();
    let found = oldest(&relay).await;
    assert_eq!((found.pid, found.kind()), (None, "prepared_transaction"));
    assert_eq!(found.title(), "prepared transaction 'it''s'");
    assert_eq!(found.mend(), "in database oldest: ROLLBACK PREPARED 'it''s'");
    assert!(found.age_ms.is_some());
    client.batch_execute("ROLLBACK PREPARED 'it''s'").await.unwrap();
    assert_ne!(oldest(&relay).await.pid, Some(pid));
}

#[test]
fn names_are_escaped_and_the_document_has_the_names_of_the_contract() {
    let of = json!({ "xid": 9, "pid": 7, "name": "a\nb", "state": null, "database": "app",
        "age_ms": 61_000 });
    let found: OldestTransaction = serde_json::from_value(of).unwrap();
    assert_eq!(found.title(), "transaction of pid 7 (application_name a\\nb)");
    assert_eq!(found.summary(), "transaction of pid 7 (application_name a\\nb), open for 61 s");
    let shown = json!({ "kind": "transaction", "pid": 7, "name": "a\nb", "age_seconds": 61,
        "text": "why" });
    assert_eq!(found.to_json(61, "why"), shown);
    let of = json!({ "xid": 9, "pid": null, "name": "", "state": null, "database": null,
        "age_ms": null });
    let found: OldestTransaction = serde_json::from_value(of).unwrap();
    assert_eq!(found.summary(), "prepared transaction ''");
}

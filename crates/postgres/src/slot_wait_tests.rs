//! Only a wait for a transaction names one to be ended.

use super::*;
use crate::testing;

#[test]
fn no_transaction_is_named_for_a_wait_of_another_kind() {
    let wait = |kind: Option<&str>, event: Option<&str>, blockers: &[i32]| {
        let (kind, event) = (kind.map(str::to_owned), event.map(str::to_owned));
        Wait { kind, event, blockers: blockers.to_vec() }
    };
    for event in ["transactionid", "virtualxid"] {
        let wait = wait(Some("Lock"), Some(event), &[7]);
        assert!(wait.is_for_transaction());
        assert_eq!(wait.sentence(), ANY_TRANSACTION);
    }
    for (other, says) in [
        (
            wait(Some("Lock"), Some("relation"), &[7, 8]),
            "a lock (relation); pg_blocking_pids: 7, 8",
        ),
        (wait(Some("IO"), Some("WALRead"), &[]), "waiting for Postgres (IO: WALRead)"),
        (wait(Some("IPC"), Some("ProcSignalBarrier"), &[]), "effective_wal_level = logical"),
        (wait(None, None, &[]), "still at work"),
    ] {
        assert!(!other.is_for_transaction());
        let sentence = other.sentence();
        assert!(sentence.contains(says) && !sentence.contains("transactions"), "{sentence}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_session_that_waits_for_a_table_names_who_holds_it() {
    let server = testing::logical();
    let (client, _) = server.database("slot_wait").await;
    client.batch_execute("CREATE TABLE held ()").await.unwrap();
    client.batch_execute("BEGIN; LOCK TABLE held").await.unwrap();
    let holder = session_pid(&client).await.unwrap();
    let (waiter, looker) = (
        server.connect("postgres", "slot_wait").await,
        server.connect("postgres", "slot_wait").await,
    );
    let pid = session_pid(&waiter).await.unwrap();
    let says = format!("waiting for a lock (relation); pg_blocking_pids: {holder}");
    let look = async {
        while describe_wait(&looker, pid).await.unwrap() != says {
            tokio::task::yield_now().await;
        }
        client.batch_execute("COMMIT").await.unwrap();
    };
    let lock = async { waiter.batch_execute("BEGIN; LOCK TABLE held; COMMIT").await.unwrap() };
    tokio::join!(lock, look);
}

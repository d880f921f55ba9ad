//! The statements run against a real Postgres, each test with a consumer of its own.

use super::*;
use crate::connection::CONNECT_WITHIN;
use crate::message::Received;
use crate::testing;

#[test]
fn a_long_key_is_stored_short_and_distinct() {
    let long = vec![7; 3_000];
    let other = [long.as_slice(), &[8]].concat();
    assert_eq!(stored_key(&long).len(), KEY_BYTES_MAX + 8);
    assert_ne!(stored_key(&long), stored_key(&other));
    assert_eq!(stored_key(b"k"), b"k");
}

const MINUTE: Duration = Duration::from_secs(60);
const DEFER_FIRST: Change = Change::Defer { level: 1, attempts: 1, wait: MINUTE };

async fn store(consumer: &str) -> Store {
    Store::open(testing::client().await, consumer).await.unwrap()
}

/// A message of key `a`; `replays` is how often its dead letter was replayed.
fn message(id: &str, copy: i32, replays: i32) -> Message {
    let (copy, replays) = (copy.to_string(), replays.to_string());
    let headers = [("id", id), ("x-retry-copy", &*copy), ("dlq-replay-count", &*replays)];
    Message::copy(Received { key: Some("a".into()), ..testing::received("", &headers) })
}

/// Claims the delivery. `is_handled`: if it is to be handled, it is.
async fn claim(store: &mut Store, message: &Message, is_handled: bool) -> Claim {
    let claimed = store.begin().await.unwrap();
    let claim = claimed.claim(message).await.unwrap();
    match &claim {
        Claim::First { .. } if is_handled => claimed.commit().await.unwrap(),
        _ => claimed.rollback().await.unwrap(),
    }
    claim
}

async fn deferred(store: &Store) -> i64 {
    let sql = "SELECT count(*) FROM deferred_messages WHERE consumer = $1";
    store.client.query_one(sql, &[&store.consumer]).await.unwrap().get(0)
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_transaction_that_the_handler_has_ended_or_that_has_failed_is_not_committed() {
    let mut store = store("ended").await;
    for (sql, code) in [("ROLLBACK", "25P01"), ("SELECT 1/0", "25P02")] {
        let claimed = store.begin().await.unwrap();
        let message = message("e-1", 0, 0);
        assert_eq!(claimed.claim(&message).await.unwrap(), Claim::First { attempts: None });
        let _says_nothing = claimed.transaction.batch_execute(sql).await;
        let error = claimed.commit().await.unwrap_err();
        assert_eq!(error.code().map(SqlState::code), Some(code), "{sql}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_another_instance_has_processed_is_not_deferred() {
    // GIVEN a message that failed in one instance, and was handled in another
    let (late, mut other) = (store("late").await, store("late").await);
    let first = message("e-1", 0, 0);
    assert_eq!(claim(&mut other, &first, true).await, Claim::First { attempts: None });
    // WHEN the first writes that it waits THEN there is no row, and no copy
    assert_eq!(late.change(&first, DEFER_FIRST).await.unwrap(), None);
    assert_eq!(deferred(&late).await, 0);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_original_of_a_dead_letter_does_not_touch_its_replay() {
    // GIVEN a dead letter whose replay waits for a retry
    let mut store = store("replay").await;
    let (original, replay) = (message("e-1", 0, 0), message("e-1", 0, 1));
    store.change(&original, Change::Dead).await.unwrap();
    assert_eq!(claim(&mut store, &replay, false).await, Claim::First { attempts: None });
    assert_eq!(store.change(&replay, DEFER_FIRST).await.unwrap(), Some(1));
    // WHEN the original comes again, in time and late
    let again = claim(&mut store, &original, true).await;
    assert_eq!(again, Claim::Duplicate { has_row: true });
    store.change(&original, Change::Forget).await.unwrap();
    assert_eq!(store.change(&original, DEFER_FIRST).await.unwrap(), None);
    store.change(&original, Change::Dead).await.unwrap();
    // (and an instance that had lost it notes a copy of it)
    store.change(&original, Change::Copied { copy: 3 }).await.unwrap();
    // THEN the row of the replay is there, later messages of its key wait, and its copy is handled
    let behind = message("e-2", 0, 0);
    let waiting = claim(&mut store, &behind, true).await;
    assert!(matches!(waiting, Claim::Waiting { level: 1, .. }), "{waiting:?}");
    let copy = message("e-1", 1, 1);
    store.change(&copy, Change::Copied { copy: 1 }).await.unwrap();
    assert_eq!(claim(&mut store, &copy, true).await, Claim::First { attempts: Some(1) });
    assert_eq!(claim(&mut store, &behind, true).await, Claim::First { attempts: None });
    assert_eq!(deferred(&store).await, 0);
    // and then it is processed, whatever comes
    for late in [original, replay, message("e-1", 0, 2)] {
        let settled = Claim::Duplicate { has_row: false };
        assert_eq!(claim(&mut store, &late, true).await, settled);
        store.change(&late, Change::Dead).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_waits_knows_when_the_message_before_it_is_due() {
    let mut store = store("due").await;
    store.change(&message("e-1", 0, 0), DEFER_FIRST).await.unwrap();
    let earlier = "UPDATE deferred_messages SET due_at = due_at - interval '80 s'
                   WHERE consumer = 'due'";
    // GIVEN a message that is due in a minute, and later has been due for twenty seconds
    for seconds in [55..=60, 20..=25] {
        let waiting = claim(&mut store, &message("e-2", 0, 0), true).await;
        let Claim::Waiting { due, .. } = waiting else { panic!("{waiting:?}") };
        assert!(seconds.contains(&due.as_secs()), "{due:?}");
        store.client.execute(earlier, &[]).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_row_of_a_settled_message_holds_nobody() {
    let mut store = store("orphan").await;
    for (id, is_dead) in [("e-1", false), ("e-2", true)] {
        // GIVEN a row that was written before its message was settled elsewhere
        let settled = message(id, 0, 0);
        store.change(&settled, DEFER_FIRST).await.unwrap();
        let sql = "INSERT INTO processed_messages (consumer, message_id, dead_replays)
                   VALUES ('orphan', $1, $2)";
        let replays = is_dead.then_some(0);
        store.client.execute(sql, &[&id, &replays]).await.unwrap();
    }
    // THEN later messages of its key are handled
    let behind = message("e-3", 0, 0);
    assert_eq!(claim(&mut store, &behind, true).await, Claim::First { attempts: None });
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn an_old_copy_and_one_without_a_row_are_duplicates_even_while_their_key_waits() {
    let mut store = store("copies").await;
    let settled = Claim::Duplicate { has_row: false };
    let waiting = |claim: &Claim| matches!(claim, Claim::Waiting { .. });
    // GIVEN nothing, and then a message of the key that waits
    for is_behind in [false, true] {
        let copy = message("gone", 1, 0);
        assert_eq!(claim(&mut store, &copy, true).await, settled, "behind another: {is_behind}");
        store.change(&message("e-1", 0, 0), DEFER_FIRST).await.unwrap();
    }
    // WHEN the second copy of one behind it is confirmed THEN only that one counts
    let original = message("e-2", 0, 0);
    store.change(&original, DEFER_FIRST).await.unwrap();
    assert!(waiting(&claim(&mut store, &original, true).await), "no copy is confirmed");
    store.change(&original, Change::Copied { copy: 2 }).await.unwrap();
    for old in [original, message("e-2", 1, 0)] {
        assert_eq!(claim(&mut store, &old, true).await, settled);
    }
    let newest = claim(&mut store, &message("e-2", 2, 0), true).await;
    assert!(waiting(&newest), "{newest:?}");
    // WHEN it was processed elsewhere THEN it is a duplicate, whatever is in front of it
    let sql = "INSERT INTO processed_messages (consumer, message_id) VALUES ('copies', 'e-2')";
    store.client.execute(sql, &[]).await.unwrap();
    let processed = claim(&mut store, &message("e-2", 2, 0), true).await;
    assert_eq!(processed, Claim::Duplicate { has_row: true });
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_handler_may_change_the_search_path_of_its_transaction() {
    // GIVEN a message that was deferred, and its copy
    let mut store = store("path").await;
    store.change(&message("e-1", 0, 0), DEFER_FIRST).await.unwrap();
    let copy = message("e-1", 1, 0);
    store.change(&copy, Change::Copied { copy: 1 }).await.unwrap();
    for is_committed in [false, true] {
        let claimed = store.begin().await.unwrap();
        let claim = claimed.claim(&copy).await.unwrap();
        assert_eq!(claim, Claim::First { attempts: Some(1) }, "before: {is_committed}");
        // WHEN its handler works in another schema, and fails or not
        claimed.transaction.batch_execute("SET LOCAL search_path = elsewhere").await.unwrap();
        match is_committed {
            true => claimed.commit().await.unwrap(),
            false => claimed.rollback().await.unwrap(),
        }
        // THEN its row is gone only when it is processed
        assert_eq!(deferred(&store).await, i64::from(!is_committed));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn no_transaction_is_confirmed_that_may_be_lost() {
    // GIVEN tables of their own, with triggers that write down how each transaction is committed
    let client = testing::client().await;
    let tables = include_str!("../../sql/inbox.sql");
    let trigger = |table: &str| {
        format!(
            "CREATE CONSTRAINT TRIGGER durable AFTER INSERT OR UPDATE ON {table}
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_durable();"
        )
    };
    let noting = "CREATE TABLE durable (used text);
        CREATE FUNCTION note_durable() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO durable VALUES (current_setting('synchronous_commit'));
            RETURN NULL;
        END $$;";
    for sql in [
        "CREATE SCHEMA durable; SET search_path = durable",
        tables,
        noting,
        &trigger("processed_messages"),
        &trigger("deferred_messages"),
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    let mut store = Store::open(client, "durable").await.unwrap();
    // GIVEN a session, perhaps another one of a pooler, that does not wait for the disk, and others
    for (set, used) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")] {
        let prepared = format!("DELETE FROM durable; SET synchronous_commit = {set}");
        store.client.batch_execute(&prepared).await.unwrap();
        let message = |part: &str| message(&format!("{set}-{part}"), 0, 0);
        // WHEN messages are handled, deferred, and given up
        let handled = claim(&mut store, &message("handled"), true).await;
        assert_eq!(handled, Claim::First { attempts: None });
        assert_eq!(store.change(&message("later"), DEFER_FIRST).await.unwrap(), Some(1));
        store.change(&message("later"), Change::Dead).await.unwrap();
        // THEN a commit that is reported lasts, and the session stays as it is
        let told =
            "SELECT string_agg(used, ' '), current_setting('synchronous_commit') FROM durable";
        let told = store.client.query_one(told, &[]).await.unwrap();
        assert_eq!(told.get::<_, String>(0), [used; 3].join(" "));
        assert_eq!(told.get::<_, String>(1), set);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_timeout_that_ends_the_session_is_an_outage() {
    let store = store("ends").await;
    for (code, ends) in [("25P03", true), ("25P04", true), ("57P01", true), ("25P02", false)] {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'ends' USING ERRCODE = '{code}'; END $$");
        let error = store.client.batch_execute(&raise).await.unwrap_err();
        assert_eq!(ends_session(&error), ends, "{code}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_session_whose_tables_are_locked_is_ended_by_the_server() {
    // GIVEN tables of their own, of which another session has locked one
    let client = async || {
        let client = testing::client().await;
        let own = "CREATE SCHEMA IF NOT EXISTS locked; SET search_path = locked";
        client.batch_execute(own).await.unwrap();
        client
    };
    let other = client().await;
    other.batch_execute(include_str!("../../sql/inbox.sql")).await.unwrap();
    other.batch_execute("BEGIN; LOCK TABLE processed_messages").await.unwrap();
    // WHEN a session is opened THEN it fails before its client gives up
    let opening = Store::open(client().await, "locked");
    let opened = tokio::time::timeout(CONNECT_WITHIN, opening).await.expect("it ends by itself");
    assert_eq!(opened.err().unwrap().code(), Some(&SqlState::LOCK_NOT_AVAILABLE));
    // WHEN the lock is gone THEN the next one is of use
    other.batch_execute("ROLLBACK").await.unwrap();
    let mut store = Store::open(client().await, "locked").await.unwrap();
    let first = claim(&mut store, &message("e-1", 0, 0), true).await;
    assert_eq!(first, Claim::First { attempts: None });
    // and only the opening had a limit
    let limit = store.client.query_one("SHOW lock_timeout", &[]).await.unwrap();
    assert_eq!(limit.get::<_, &str>(0), "0");
}

//! Tests of changes of a transaction to its rows, and of the events that they become.

use std::time::Duration;

use walrelay_harness::relay::get;

use crate::support::faults::{CliFixture, keys};

#[test]
fn a_row_that_is_deleted_at_once_is_still_an_event() {
    let scene = CliFixture::ready("tx_delete");
    let name = &scene.name;
    scene.sql(&format!(
        "BEGIN; INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('{name}', '1', 'T');
         DELETE FROM outbox; COMMIT"
    ));
    assert_eq!(scene.sql("SELECT count(*) FROM outbox"), "0");
    scene.carry(&[]);
    assert_eq!(keys(&scene.records()), ["1"]);
}

#[test]
fn updates_deletes_and_truncates_are_counted_and_not_published() {
    // GIVEN a publication that lets everything through
    let mut scene = CliFixture::ready("tx_operations");
    scene.sql("ALTER PUBLICATION walrelay SET (publish = 'insert, update, delete, truncate')");
    let admin = scene.choose_admin();
    scene.insert("1", "{}");
    scene.sql(
        "UPDATE outbox SET type = 'U'; UPDATE outbox SET type = 'V'; DELETE FROM outbox; TRUNCATE outbox;",
    );
    scene.insert("2", "{}");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // THEN a person is warned, and the numbers tell
    let said = relay.said();
    assert!(
        said.contains("publication walrelay also publishes UPDATE, DELETE, TRUNCATE"),
        "{said}"
    );
    assert!(said.contains("UPDATE of an outbox row is no event"), "{said}");
    let metrics = get(admin, "/metrics", Duration::from_secs(5)).unwrap().body;
    for line in [
        "outbox_ignored_rows_total{operation=\"update\"} 2\n",
        "outbox_ignored_rows_total{operation=\"delete\"} 1\n",
        "outbox_ignored_rows_total{operation=\"truncate\"} 1\n",
        "outbox_events_total{outcome=\"published\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    relay.stop();
    assert_eq!(keys(&scene.records()), ["1", "2"]);
}

#[test]
fn a_copy_of_many_rows_under_one_lsn_arrives_whole() {
    let scene = CliFixture::ready("tx_copy");
    let name = &scene.name;
    scene.sql(&format!(
        "COPY outbox (aggregatetype, aggregateid, type, payload)
         FROM PROGRAM 'seq -f \"{name},%.0f,T,{{}}\" 5000' (FORMAT csv)"
    ));
    let records = scene.carry(&[&scene.topic()]);
    let lsns: std::collections::BTreeSet<_> = records.iter().map(|r| r.header("lsn")).collect();
    let ids: std::collections::BTreeSet<_> = records.iter().map(|r| r.header("id")).collect();
    assert_eq!((records.len(), ids.len(), lsns.len()), (5000, 5000, 1));
    let in_order = records.iter().zip(1..).all(|(r, i)| r.key() == Some(i.to_string().as_str()));
    assert!(in_order, "the order of one transaction is that of its rows");
}

#[test]
fn what_a_savepoint_takes_back_is_no_event() {
    let scene = CliFixture::ready("tx_savepoint");
    let name = &scene.name;
    let insert = |key: u32| {
        format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('{name}', '{key}', 'T');"
        )
    };
    let (one, two, three, four) = (insert(1), insert(2), insert(3), insert(4));
    scene.sql(&format!(
        "BEGIN; {one} SAVEPOINT a; {two} SAVEPOINT b; {three} ROLLBACK TO a; {four} COMMIT;"
    ));
    scene.sql(&format!("BEGIN; {} ROLLBACK;", insert(5)));
    scene.carry(&[]);
    assert_eq!(keys(&scene.records()), ["1", "4"]);
}

#[test]
fn a_prepared_transaction_is_published_when_it_commits_and_only_then() {
    let scene = CliFixture::ready("tx_prepared");
    let name = &scene.name;
    let prepare = |key: &str| {
        scene.sql(&format!(
            "BEGIN; INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('{name}', '{key}', 'T');
             PREPARE TRANSACTION '{name}-{key}'"
        ));
    };
    // GIVEN two prepared transactions and one that commits after them
    prepare("kept");
    prepare("dropped");
    scene.insert("plain", "{}");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    assert_eq!(keys(&scene.records()), ["plain"]);
    // WHEN one is committed and one rolled back, while the relay is away for the commit
    relay.stop();
    scene.sql(&format!("ROLLBACK PREPARED '{name}-dropped'"));
    scene.sql(&format!("COMMIT PREPARED '{name}-kept'"));
    scene.carry(&[]);
    // THEN the commit's place counts, not that of the preparation
    assert_eq!(keys(&scene.records()), ["plain", "kept"]);
}

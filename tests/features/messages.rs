//! Logical messages as an outbox without a table.

use crate::support::faults::{HALT, Scene, read};

fn scene(name: &str) -> Scene<'static> {
    let mut scene = Scene::bare(name);
    scene.sql("CREATE PUBLICATION walrelay WITH (publish = 'insert')");
    scene.make_slot();
    scene.make_topic(&scene.topic(), 1);
    scene.source = "[source.messages]\nprefix = \"outbox\"\n".into();
    scene
}

fn emit(transactional: bool, prefix: &str, topic: &str, id: &str) -> String {
    format!(
        r#"SELECT pg_logical_emit_message({transactional}, '{prefix}',
           '{{"id": "{id}", "aggregatetype": "{topic}", "aggregateid": "k", "type": "T", "payload": {{"n": {id}, "s" : "ü"}}}}');"#
    )
}

#[test]
fn only_what_was_committed_under_the_prefix_is_an_event() {
    let scene = scene("messages_kinds");
    let emit = |transactional, prefix, id| emit(transactional, prefix, &scene.name, id);
    scene.sql(&emit(true, "outbox", "1"));
    scene.sql(&emit(false, "outbox", "2"));
    scene.sql(&emit(true, "outbox2", "3"));
    scene.sql(&emit(true, "", "4"));
    scene.sql(&format!("BEGIN; {} ROLLBACK;", emit(true, "outbox", "5")));
    scene.sql(&format!("BEGIN; {} ROLLBACK;", emit(false, "outbox", "6")));
    let (seven, eight, nine) =
        (emit(true, "outbox", "7"), emit(true, "outbox", "8"), emit(true, "outbox", "9"));
    scene.sql(&format!("BEGIN; {seven} SAVEPOINT s; {eight} ROLLBACK TO s; {nine} COMMIT;"));
    let records = scene.carry(&[&scene.topic()]);
    let found: Vec<_> = records.iter().map(|record| record.header("id").unwrap()).collect();
    assert_eq!(found, ["1", "7", "9"]);
    // THEN a payload that is JSON is passed through as it was written
    assert_eq!((records[0].key(), records[0].text()), (Some("k"), r#"{"n": 1, "s" : "ü"}"#));
    assert_eq!(records[0].header_names(), ["id", "event_type", "commit_ts", "lsn"]);
}

#[test]
fn messages_and_rows_of_one_transaction_keep_their_order() {
    let mut scene = Scene::ready("messages_rows");
    scene.source = "[[source.outbox]]\ntable = \"public.outbox\"\n[source.messages]\n".into();
    let name = &scene.name;
    let row = |id: u32| {
        format!(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
             ('00000000-0000-0000-0000-00000000000{id}', '{name}', 'k', 'T', '{id}');"
        )
    };
    let message = |id| emit(true, "outbox", name, id);
    scene.sql(&format!("BEGIN; {} {} {} {} COMMIT;", row(1), message("2"), row(3), message("4")));
    let records = scene.carry(&[&scene.topic()]);
    let found: Vec<_> = records.iter().map(|r| r.header("id").unwrap().to_owned()).collect();
    let uuid = |id: u32| format!("00000000-0000-0000-0000-00000000000{id}");
    assert_eq!(found, [uuid(1), "2".to_owned(), uuid(3), "4".to_owned()]);
}

#[test]
fn a_message_that_is_no_object_halts_and_nothing_is_skipped() {
    let mut scene = scene("messages_bad");
    scene.extra = HALT.into();
    scene.sql(&emit(true, "outbox", &scene.name, "1"));
    let lsn = scene.commit(
        "DO $$ BEGIN PERFORM pg_logical_emit_message(true, 'outbox', 'not json, a secret'); END $$",
    );
    let ended = scene.walrelay(&["run"]);
    ended.assert_fault(
        6,
        "event.unpublishable",
        &["message-not-object", "logical message at", "it is held"],
    );
    assert!(!ended.all().contains("a secret"), "{ended}");
    assert!(scene.held_before(&lsn));
    // THEN what was committed before it has arrived
    let records = read(&[&scene.topic()]);
    assert_eq!(records.iter().map(|r| r.header("id").unwrap()).collect::<Vec<_>>(), ["1"]);
}

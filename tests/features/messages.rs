//! Logical messages as an outbox without a table.

use std::process::Command;

use crate::support::faults::{CliFixture, HALT, read};
use crate::support::{query, shared_postgres};

fn scene(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::bare(name);
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
fn nobody_but_the_application_may_emit_once_the_script_was_run() {
    let scene = scene("messages_rights");
    let (writer, other) = ("messages_writer", "messages_other");
    scene.sql(&format!("CREATE ROLE {writer} LOGIN; CREATE ROLE {other} LOGIN"));
    let emits = |role: &str, content: &str| {
        let url = scene.url.replace("postgres@", &format!("{role}@"));
        let sql = format!("SELECT pg_logical_emit_message(true, 'outbox', {content})");
        query(&url, &sql).map(drop).map_err(|error| error.code().unwrap().code().to_owned())
    };
    let denied = Err("42501".to_owned());
    let run_script = |words: &[&str]| {
        let postgres = shared_postgres();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/messages.sql");
        let mut psql = Command::new(postgres.bin_dir().unwrap().join("psql"));
        psql.args(["-Xq", "-d", &postgres.url(&scene.name), "-f", file]);
        psql.args(words).output().unwrap()
    };
    let script = |words: &[&str]| {
        let output = run_script(words);
        assert!(output.status.success(), "{output:?}");
    };
    // GIVEN a role with no rights at all: it may make events, check says so, and init does not
    // change it
    assert_eq!(emits(other, "'{}'"), Ok(()));
    let warning = "! every role of database messages_rights may emit events";
    let revoke =
        "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_logical_emit_message(boolean, text, text";
    scene.walrelay(&["check"]).assert_done().assert_says(&[warning, revoke]);
    let hint =
        "! let nobody but the application emit messages: run this as a superuser: BEGIN; GRANT";
    scene.walrelay(&["init"]).assert_done().assert_says(&[hint]);
    let printed = scene.walrelay(&["init", "--sql"]);
    printed.assert_done().assert_says(&["-- BEGIN; GRANT EXECUTE ON FUNCTION"]);
    // WHEN the script is run without a role, or with one that is not there, THEN nothing is taken away
    script(&[]);
    assert_eq!(emits(other, "'{}'"), Ok(()));
    assert!(!run_script(&["-v", "role=messages_absent"]).status.success());
    assert_eq!(emits(other, "'{}'"), Ok(()));
    // WHEN it is run with the application's role, once or twice, THEN nobody else may
    script(&["-v", &format!("role={writer}")]);
    script(&["-v", &format!("role={writer}")]);
    for content in ["'{}'::text", "'{}'::bytea"] {
        assert_eq!(emits(other, content), denied);
        assert_eq!(emits(writer, content), Ok(()));
    }
    let told = scene.walrelay(&["check"]);
    assert!(!told.assert_done().all().contains("may emit"), "{told}");
    scene.walrelay(&["init"]).assert_done().assert_says(&["nothing is missing"]);
    scene.sql(&format!("DROP OWNED BY {writer}; DROP ROLE {writer}, {other}"));
}

#[test]
fn messages_and_rows_of_one_transaction_keep_their_order() {
    let mut scene = CliFixture::ready("messages_rows");
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

//! Tests of contents of rows that are shown, and obeyed by no reader: neither by who reads the log
//! line by line, nor by a terminal.

use serde_json::Value;

use crate::support::faults::{CliFixture, HALT};

/// As SQL and as Rust: a line that looks like one of the relay's, and what clears a screen.
const FORGED_SQL: &str =
    "\\n{\"level\":\"INFO\",\"message\":\"forged\"}\\n\\r\\x1b[2J\\u009b2J\\u202e";
const FORGED: &str = "\n{\"level\":\"INFO\",\"message\":\"forged\"}\n\r\x1b[2J\u{9b}2J\u{202e}";

/// Asserts that no character of the text moves a cursor, but the ends of its lines.
#[track_caller]
fn assert_harmless(text: &str) {
    let hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(hidden), "{text:?}");
}

/// Every line is a JSON object of the relay's own.
#[track_caller]
fn parsed(log: &str) -> Vec<Value> {
    assert_harmless(log);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["message"] != "forged" && line["timestamp"].is_string()));
    lines
}

#[test]
fn what_a_row_holds_forges_no_line_and_moves_no_cursor() {
    let mut scene = CliFixture::bare("shown_forged");
    scene.sql("CREATE TABLE outbox (id text, aggregatetype text, aggregateid text, type text, payload text)");
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    scene.sink.push_str("topics = [\"shown.forged\"]\n");
    scene.extra = "[dead_letter]\ntopic = \"shown.forged.dlq\"\n".into();
    scene.walrelay(&["init"]).assert_done();
    // GIVEN rows whose id, key and topic forge lines, and that no topic takes
    let insert = |scene: &CliFixture<'_>, id: &str| {
        scene.sql(&format!(
            "INSERT INTO outbox VALUES (E'{id}{FORGED_SQL}', E'x{FORGED_SQL}', E'k{FORGED_SQL}', 'T', E'p{FORGED_SQL}')"
        ));
    };
    insert(&scene, "e1");
    insert(&scene, "e2");
    // WHEN they become dead letters
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.wait_confirmed(&mut relay);
    let ended = relay.stop();
    // THEN each line of the log is one of the relay's, and says what was in the row
    let lines = parsed(&ended.err);
    let id = format!("e1{FORGED}");
    assert!(lines.iter().any(|line| line.to_string().contains(r"e1\n{")), "{ended}");
    // THEN so is each line of the table
    let list = scene.walrelay(&["dlq", "list"]);
    assert_harmless(list.assert_done().out.as_str());
    assert_harmless(&list.err);
    assert_eq!(list.out.lines().count(), 1 + 2, "{list}");
    let show = scene.walrelay(&["dlq", "show", &id]);
    assert_harmless(&show.assert_done().out);
    assert!(!show.out.lines().any(|line| line.starts_with('{')), "{show}");
    let json = scene.walrelay(&["dlq", "list", "--json"]);
    let letters = parsed_json(&json.assert_done().out);
    assert_eq!(letters[0]["event_id"], id);
    // WHEN such a row ends the relay THEN its last line is the fault
    scene.extra.push_str(HALT);
    insert(&scene, "e3");
    let ended = scene.walrelay(&["run"]);
    assert_eq!(ended.code, 6, "{ended}");
    let last = parsed(&ended.err).pop().unwrap();
    for (name, value) in [("level", "ERROR"), ("code", "event.unpublishable")] {
        assert_eq!(last[name], value, "{last}");
    }
    assert_eq!(last["exit"], 6);
    for name in ["message", "where", "help"] {
        assert!(last[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {last}");
    }
    // THEN what ends a command that people type is told as text
    let told = scene.walrelay(&["dlq", "show", &format!("none{FORGED}")]);
    assert_harmless(&told.err);
    assert!(told.err.starts_with("error[dead-letter.unknown]: "), "{told}");
    // THEN check shows the topics of these rows, and nothing of what they forge
    let check = scene.walrelay(&["check"]);
    assert_harmless(&check.assert_done().out);
    assert!(!check.out.lines().any(|line| line.starts_with('{')), "{check}");
}

#[track_caller]
fn parsed_json(text: &str) -> Vec<Value> {
    assert_harmless(text);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

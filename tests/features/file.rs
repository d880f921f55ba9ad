//! Events in a file instead of a broker, and the dead letters beside it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;

use crate::support::faults::CliFixture;
use crate::support::{LIMIT, until};

/// Prints the id and the error class of each dead letter.
const JQ_ID_AND_CLASS: &str = r#"[.headers as $h | range(0; $h | length; 2) | {($h[.]): $h[. + 1]}] | add | "\(."dlq-event-id") \(."dlq-error-class")""#;

fn scene(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::ready(name);
    scene.sink = sink(&scene, "64KiB");
    scene
}

fn events_file(scene: &CliFixture<'_>) -> PathBuf {
    scene.folder().join("events.jsonl")
}

fn sink(scene: &CliFixture<'_>, event_bytes_max: &str) -> String {
    let path = events_file(scene);
    format!(
        "[sink]\nkind = \"file\"\n[sink.file]\npath = {path:?}\nevent_bytes_max = {event_bytes_max:?}\n"
    )
}

/// Every event of the file. A line that a crash has left incomplete is no JSON.
fn lines(scene: &CliFixture<'_>) -> Vec<Json> {
    let Ok(mut text) = std::fs::read(events_file(scene)) else { return Vec::new() };
    // What is being written has no end yet, and a part of it may not be a whole character.
    text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[test]
fn a_killed_relay_loses_nothing_and_keeps_the_order_of_keys() {
    const ROUNDS: usize = 4;
    let scene = scene("file_kill");
    for round in 0..ROUNDS {
        // GIVEN rows of 20 keys, in transactions of three
        let first = round * 1_500;
        scene.sql(&format!(
            "DO $$ BEGIN FOR n IN {first} .. {} LOOP
               INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
               VALUES ('order', n % 20, 'T', json_build_object('n', n)::jsonb);
               IF n % 3 = 0 THEN COMMIT; END IF;
             END LOOP; END $$",
            first + 1_499
        ));
        // WHEN the relay is killed while it writes, and its last write is torn
        let before = lines(&scene).len();
        let mut relay = scene.spawn(&["run"]);
        relay.wait_until("some events", || lines(&scene).len() > before);
        drop(relay);
        let mut text = std::fs::read(events_file(&scene)).unwrap();
        // The kill itself may have torn a line, even within its first bytes.
        if text.ends_with(b"\n") {
            text.extend(b"{\"topic\":\"outbox.event.order\",\"ts\":17000");
        }
        std::fs::write(events_file(&scene), text).unwrap();
    }
    let mut relay = scene.spawn(&["run"]);
    // Also if the killed relay has confirmed everything.
    relay.wait_to_say("streaming");
    scene.wait_confirmed(&mut relay);
    relay.stop();
    // THEN all are there, as they were, and the first of each in the order of its key
    let (mut seen, mut last) = (HashSet::new(), HashMap::new());
    let lines = lines(&scene);
    for line in &lines {
        let payload: Json = serde_json::from_str(line["payload"].as_str().unwrap()).unwrap();
        let n = payload["n"].as_u64().unwrap();
        assert_eq!(line["key"], (n % 20).to_string());
        assert_eq!(line["topic"], "outbox.event.order");
        if seen.insert(n) {
            let before = last.insert(n % 20, n);
            assert!(before < Some(n), "{n} came behind {before:?}");
        }
    }
    assert_eq!(seen.len(), ROUNDS * 1_500);
    // AND each kill has left at most one line that is no event, and no event stands within it
    let text = String::from_utf8_lossy(&std::fs::read(events_file(&scene)).unwrap()).into_owned();
    let torn: Vec<&str> =
        text.lines().filter(|it| serde_json::from_str::<Json>(it).is_err()).collect();
    assert!((1..=ROUNDS).contains(&torn.len()), "{torn:?}");
    assert!(torn.iter().all(|it| it.matches("{\"topic\":").count() <= 1), "{torn:?}");
    println!("{} repeated over {ROUNDS} kills", lines.len() - seen.len());
}

#[test]
fn dead_letters_go_to_a_second_file_which_jq_reads() {
    let mut scene = scene("file_dead_letters");
    let large = format!("{{\"pad\": \"{}\"}}", "x".repeat(100_000));
    let refused = scene.insert("a", &large);
    let passed = scene.insert("b", "{\"n\": 3}");
    let id = |line: &Json| line["headers"][1].as_str().unwrap().to_owned();
    // GIVEN an event that is larger than the file takes WHEN it is relayed
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // A second relay of the same file is refused.
    let second = scene.walrelay(&["run", "--listen", "127.0.0.1:0"]);
    second.assert_fault(5, "sink.file-locked", &["another relay writes", "fuser", "events.jsonl"]);
    scene.walrelay(&["check"]).assert_says(&["! a relay writes", "another sink.file.path"]);
    relay.stop();
    // THEN the other event is there, and this one is a dead letter, whole
    assert_eq!(lines(&scene).iter().map(id).collect::<Vec<_>>(), [passed]);
    let dead_letters = scene.folder().join("outbox.dlq.jsonl");
    let jq = Command::new("jq").args(["-r", JQ_ID_AND_CLASS]).arg(&dead_letters).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&jq.stdout), format!("{refused} file.event-too-large\n"));
    assert!(std::fs::read_to_string(&dead_letters).unwrap().contains(&"x".repeat(100_000)));
    scene.walrelay(&["check"]).assert_done().assert_says(&["outbox.dlq.jsonl can be written"]);
    // AND no command reads it
    let words = ["outbox.dlq.jsonl", "does not read", "jq . "];
    for action in [
        &["list"][..],
        &["show", "1"],
        &["replay", "--all"],
        &["purge", "--older-than", "1d", "--yes"],
    ] {
        scene.walrelay(&[&["dlq"], action].concat()).assert_fault(
            2,
            "dead-letter.in-a-file",
            &words,
        );
    }
    // Other tests write to this server: only the horizon of the slot shows that it has passed the row.
    let found = until("the slot has passed the row", LIMIT, || {
        scene.sql("CHECKPOINT");
        let end = "pg_current_wal_insert_lsn()";
        scene.sql(&format!("SELECT pg_replication_slot_advance('{}', {end})", scene.name));
        let found = scene.walrelay(&["find", &refused]);
        (found.code == 1).then_some(found)
    });
    found.assert_says(&["unknown", "a file is not searched", "does not read"]);
    // AND no key can be parked, because a restart could not know it
    scene.extra = "[delivery]\non_dead_letter = \"park_key\"\n".into();
    scene.assert_refused(2, "config.conflict", &["on_dead_letter", "a file are not read"]);
}

//! Events in a file instead of a broker, and the dead letters beside it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value as Json;

use crate::support::faults::{CliFixture, OUTBOX_SQL};

fn scene(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::bare(name);
    scene.sql(OUTBOX_SQL);
    scene.publish("TABLE public.outbox");
    scene.make_slot();
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

/// Every line of the file, whole ones only. The relay writes under an exclusive lock: without the
/// shared one, a read can see the file before and after a torn line was removed.
fn lines(scene: &CliFixture<'_>) -> Vec<Json> {
    let Ok(mut file) = File::open(events_file(scene)) else { return Vec::new() };
    flock(&file, FlockOperation::LockShared).unwrap();
    let mut text = Vec::new();
    file.read_to_end(&mut text).unwrap();
    drop(file);
    // A killed relay may leave a part of a character behind the last whole line.
    text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    let text = String::from_utf8(text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
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
    println!("{} repeated over {ROUNDS} kills", lines.len() - seen.len());
}

#[test]
fn a_dead_letter_is_listed_shown_and_replayed_and_another_discarded() {
    let mut scene = scene("file_dead_letters");
    let large = |n: u32| format!("{{\"n\": {n}, \"pad\": \"{}\"}}", "x".repeat(100_000));
    let [replayed, discarded] = [1, 2].map(|n| scene.insert("a", &large(n)));
    let passed = scene.insert("b", "{\"n\": 3}");
    let id = |line: &Json| line["headers"][1].as_str().unwrap().to_owned();
    // GIVEN events that are larger than the file takes WHEN they are relayed
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    relay.stop();
    // THEN the others are there, and these are dead letters
    assert_eq!(lines(&scene).iter().map(id).collect::<Vec<_>>(), std::slice::from_ref(&passed));
    let listed = scene.walrelay(&["dlq", "list", "--json"]);
    listed.assert_done().assert_says(&[&replayed, &discarded, "file.event-too-large"]);
    scene.walrelay(&["dlq", "show", &replayed]).assert_done().assert_says(&["event_bytes_max"]);
    scene.walrelay(&["check"]).assert_done().assert_says(&["outbox.dlq.jsonl can be written"]);
    // WHEN the limit is raised THEN one is replayed while the relay runs, and the other discarded
    scene.walrelay(&["dlq", "discard", &discarded, "--yes"]).assert_done();
    scene.sink = sink(&scene, "1MiB");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.walrelay(&["dlq", "replay", "--all"]).assert_done();
    let last = scene.insert("c", "{\"n\": 4}");
    scene.wait_confirmed(&mut relay);
    // A second relay of the same file is refused.
    let second = scene.walrelay(&["run", "--listen", "127.0.0.1:0"]);
    second.assert_fault(5, "sink.file-locked", &["another relay writes", "events.jsonl"]);
    relay.stop();
    assert_eq!(lines(&scene).iter().map(id).collect::<Vec<_>>(), [passed, replayed, last]);
    let payload = lines(&scene)[1]["payload"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Json>(&payload).unwrap()["pad"], "x".repeat(100_000));
    let open = scene.walrelay(&["dlq", "list", "--json"]);
    assert_eq!(open.assert_done().out, "");
}

#[test]
fn what_keeps_the_file_from_being_written_is_told_before_the_first_event() {
    let mut scene = scene("file_faults");
    scene.insert("a", "{}");
    let path = |file: &str| format!("[sink]\nkind = \"file\"\n[sink.file]\npath = {file:?}\n");
    scene.sink = path("/nowhere/events.jsonl");
    scene.assert_refused(5, "sink.file-unusable", &["No such file", "mkdir -p /nowhere"]);
    scene.sink = path(&scene.folder().display().to_string());
    scene.assert_refused(5, "sink.file-unusable", &["cannot be used", "set sink.file.path"]);
    scene.sink = path("outbox.dlq.jsonl");
    scene.assert_refused(2, "config.conflict", &["dead letters", "dead_letter.topic"]);
}

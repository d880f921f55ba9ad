//! `walrelay status`, and what it asks the admin server for.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::relay::get;

use crate::support::faults::{CliFixture, Ended, Relay};

/// A relay that writes to a file, with an admin address of its own.
pub(super) fn scene(name: &str) -> (CliFixture<'static>, SocketAddr) {
    let mut scene = CliFixture::ready(name);
    let events = scene.folder().join("events.jsonl");
    scene.sink = format!("[sink]\nkind = \"file\"\n[sink.file]\npath = {events:?}\n");
    let admin = scene.choose_admin();
    (scene, admin)
}

fn is_ready(admin: SocketAddr) -> bool {
    get(admin, "/readyz", Duration::from_secs(5)).is_ok_and(|answer| answer.status == 200)
}

/// Runs `walrelay status WORDS` where there is no configuration file.
fn status_elsewhere(scene: &CliFixture<'_>, words: &[&str]) -> Ended {
    let words: Vec<&str> = std::iter::once("status").chain(words.iter().copied()).collect();
    Relay::spawn(scene.folder(), Path::new("/nonexistent/walrelay.toml"), &words, &[]).wait()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn relays_are_shown_whether_they_answer_or_not() {
    let (scene, admin) = scene("status_shown");
    // GIVEN no relay THEN that is told, with what to do, and the exit code says it
    let ended = scene.walrelay(&["status"]);
    assert_eq!(ended.code, 1, "{ended}");
    ended.assert_says(&[
        "error[status.unreachable]",
        "no relay listens there: Connection refused",
        "ss -ltnp",
        "walrelay run",
    ]);
    // GIVEN one that has published
    let mut relay = scene.spawn(&["run"]);
    relay.wait_until("the relay to be ready", || is_ready(admin));
    scene.insert("1", "{\"n\": 1}");
    scene.wait_confirmed(&mut relay);
    let url = format!("http://{admin}");
    let mut last = Value::Null;
    relay.wait_until("the rates", || {
        last =
            json(&status_elsewhere(&scene, &["--json", "--url", &url]).assert_done().out)[0].take();
        last["rates"]["published_per_second"].as_f64().is_some_and(|rate| rate > 0.0)
    });
    assert_eq!((&last["url"], &last["ready"]), (&url.into(), &true.into()), "{last}");
    assert_eq!(last["events"]["published"], 1, "{last}");
    assert!(last["latency_ms"]["p99"].as_f64().is_some_and(|p99| p99 > 0.0), "{last}");
    // WHEN it is asked by the configuration THEN the screen is plain text
    let ended = scene.walrelay(&["status"]);
    ended.assert_done().assert_says(&["streaming", "slot status_shown", "published", "p50", "WAL"]);
    assert!(
        ended.out.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)),
        "{ended}"
    );
    // WHEN another one is not there THEN both are told of, and the exit code is that of a failure
    let one = admin.to_string();
    let gone = format!("127.0.0.1:{}", walrelay_harness::free_port().unwrap());
    let both = ["--url", &one, "--url", &gone];
    let ended = status_elsewhere(&scene, &both);
    assert_eq!(ended.code, 1, "{ended}");
    ended.assert_says(&["streaming", "no answer,", &gone, "help:", "ready: 1 of 2 relays"]);
    let ended = status_elsewhere(&scene, &[&["--json"][..], &both].concat());
    assert_eq!(ended.code, 1, "{ended}");
    let answers = json(&ended.out);
    assert_eq!(answers.as_array().map(Vec::len), Some(2), "{answers}");
    assert_eq!(answers[0]["state"], "streaming", "{answers}");
    assert_eq!(answers[1]["url"], format!("http://{gone}"), "{answers}");
    assert_eq!(answers[1]["error"]["code"], "status.unreachable", "{answers}");
    status_elsewhere(&scene, &["--url", "https://x"]).assert_fault(2, "status.bad-url", &["TLS"]);
    relay.stop();
}

#[test]
fn a_watch_asks_each_second_until_it_is_stopped() {
    let (scene, admin) = scene("status_watched");
    let mut relay = scene.spawn(&["run"]);
    relay.wait_until("the relay to be ready", || is_ready(admin));
    // WHEN it is watched as JSON THEN there is an array on each line
    let mut watch = scene.spawn(&["status", "--watch", "--json"]);
    watch.wait_until("two lines", || watch_lines(&scene, "[{").len() >= 2);
    watch.signal(Signal::INT);
    let ended = watch.wait();
    assert!(ended.assert_done().out.lines().all(|line| json(line)[0]["ready"] == true), "{ended}");
    // WHEN it is watched as text THEN there is a block each second, without escape codes
    let mut watch = scene.spawn(&["status", "--watch"]);
    watch.wait_until("two blocks", || watch_lines(&scene, "streaming").len() >= 2);
    // WHEN the relay goes THEN the watch goes on, and its exit code is that of the last look
    relay.stop();
    watch.wait_until("no answer", || !watch_lines(&scene, "no answer,").is_empty());
    watch.signal(Signal::TERM);
    let ended = watch.wait();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(!ended.out.contains('\x1b'), "{ended}");
}

/// The lines that begin so, of all that the scene's commands have printed by now.
fn watch_lines(scene: &CliFixture<'_>, start: &str) -> Vec<String> {
    let files = std::fs::read_dir(scene.folder()).unwrap().map(|entry| entry.unwrap().path());
    let outs = files.filter(|path| path.extension().is_some_and(|it| it == "out"));
    let texts = outs.map(|path| std::fs::read_to_string(path).unwrap());
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| line.starts_with(start)).collect()
}

#[test]
fn the_history_of_a_relay_has_what_it_has_published() {
    let (scene, admin) = scene("status_history");
    let mut relay = scene.spawn(&["run"]);
    relay.wait_until("the relay to be ready", || is_ready(admin));
    // WHEN an event is published THEN a sample has it
    scene.insert("1", "{\"n\": 1}");
    let samples = |path: &str| {
        let history = json(&get(admin, path, Duration::from_secs(5)).unwrap().body);
        history["samples"].as_array().unwrap().clone()
    };
    let published = |sample: &Value| sample["published_per_second"].as_f64().unwrap() > 0.0;
    relay.wait_until("a sample", || samples("/history").iter().any(published));
    let sample = samples("/history").into_iter().find(published).unwrap();
    assert!(sample["p50_ms"].as_f64().unwrap() > 0.0, "{sample}");
    // THEN a client that has seen it is sent what is newer
    let since = format!("/history?since={}", sample["at"]);
    relay.wait_until("a newer sample", || !samples(&since).is_empty());
    assert!(samples(&since).iter().all(|newer| newer["at"].as_i64() > sample["at"].as_i64()));
}

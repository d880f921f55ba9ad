//! A stop that protects data stands until somebody acknowledges it, whatever restarts the relay.

use serde_json::Value;

use crate::dead_letters::api::request;
use crate::support::LIMIT;
use crate::support::faults::{CliFixture, Ended, keys};

const CODE: &str = "publication.recreated";

/// A relay with a dead-letter topic of its own; its state file is in `STATE_DIRECTORY`, if any.
fn scene(name: &str, has_state_file: bool) -> CliFixture<'static> {
    let mut scene = CliFixture::ready(name);
    if !has_state_file {
        scene.env.push(("STATE_DIRECTORY".into(), String::new()));
    }
    let letters = format!("{name}.dlq");
    scene.make_topic(&letters, 2);
    scene.extra = format!("[dead_letter]\ntopic = {letters:?}\n");
    scene
}

/// A row that was written while the publication did not cover its table.
fn open_gap(scene: &CliFixture<'_>) {
    let name = &scene.name;
    // One transaction: nobody sees it open.
    scene.sql(&format!(
        "ALTER PUBLICATION walrelay DROP TABLE outbox;
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('{name}', '2', 'T', '{{}}');
         ALTER PUBLICATION walrelay ADD TABLE outbox"
    ));
}

/// Every start ends with the same fault, until it is acknowledged; then events flow.
#[track_caller]
fn assert_stop_until_resumed(scene: &CliFixture<'_>) {
    for start in 1..=2 {
        let ended = scene.walrelay(&["run"]);
        let words = ["public.outbox", "WITH moved AS (DELETE FROM", "walrelay resume"];
        ended.assert_fault(4, CODE, &words);
        assert_eq!(keys(&scene.records()), ["1"], "start {start}\n{ended}");
    }
    // Nobody is asked without a terminal.
    scene.walrelay(&["resume"]).assert_fault(2, "command.unconfirmed", &[CODE, "--yes"]);
    let would = scene.walrelay(&["resume", "--dry-run", "--output", "json"]);
    let value = would.assert_done().json();
    assert_eq!((&value["stop"]["code"], &value["acknowledged"]), (&CODE.into(), &false.into()));
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&[CODE]);
    let resumed: Ended = scene.walrelay(&["resume", "--yes", "--reason", "compared"]);
    assert_eq!(resumed.code, 0, "{resumed}");
    resumed.assert_says(&[CODE, "since", "compare"]);
    scene.insert("3", "{}");
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["1", "3"]);
    scene.walrelay(&["resume", "--yes"]).assert_fault(1, "resume.nothing", &[]);
}

fn gap_while_no_relay_runs(name: &str, has_state_file: bool) {
    // GIVEN a relay that has relayed, and was stopped
    let scene = scene(name, has_state_file);
    scene.insert("1", "{}");
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["1"]);
    // WHEN a row is written while the publication does not cover its table THEN no start passes it
    open_gap(&scene);
    assert_stop_until_resumed(&scene);
}

#[test]
fn a_gap_while_no_relay_runs_is_found_by_what_the_state_file_remembers() {
    gap_while_no_relay_runs("stop_gap_file", true);
}

#[test]
fn a_gap_while_no_relay_runs_is_found_by_the_age_of_the_catalog_without_a_state_file() {
    gap_while_no_relay_runs("stop_gap_age", false);
}

#[test]
fn a_gap_that_a_living_relay_finds_is_not_undone_by_a_restart() {
    let scene = scene("stop_gap_living", true);
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.insert("1", "{}");
    scene.wait_confirmed(&mut relay);
    // WHEN the table is taken out for longer than the relay looks away
    scene.sql("ALTER PUBLICATION walrelay DROP TABLE outbox");
    scene.insert("2", "{}");
    let ended = relay.wait();
    assert_eq!(ended.code, 4, "{ended}");
    // WHEN that is mended, and a supervisor starts it again THEN it stays stopped
    scene.sql("ALTER PUBLICATION walrelay ADD TABLE outbox");
    for _ in 1..=2 {
        let again = scene.walrelay(&["run"]);
        assert_eq!(again.code, 4, "{again}");
        again.assert_says(&["publication.", "walrelay resume"]);
    }
    assert_eq!(scene.walrelay(&["resume", "--yes"]).code, 0);
    scene.insert("3", "{}");
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["1", "3"]);
}

#[test]
fn a_relay_that_waits_is_alive_and_not_ready_until_it_is_resumed() {
    const TOKEN: &str = "a-token-of-this-test";
    // GIVEN a relay that waits when it is halted
    let mut scene = scene("stop_wait", true);
    let admin = scene.choose_admin();
    let delivery = "[delivery]\nwhen_halted = \"wait\"\n";
    scene.extra = format!("token = {TOKEN:?}\n{delivery}{}", scene.extra);
    scene.insert("1", "{}");
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["1"]);
    open_gap(&scene);
    let mut relay = scene.spawn(&["run"]);
    let get = |path| walrelay_harness::relay::get(admin, path, LIMIT);
    // WHEN it stops THEN it is alive, says why it is not ready, and holds no session
    relay.wait_until("the stop", || get("/readyz").is_ok_and(|it| it.body.contains(CODE)));
    let ready = get("/readyz").unwrap();
    assert_eq!((ready.status, get("/livez").unwrap().status), (503, 200), "{}", ready.body);
    let status: Value = serde_json::from_str(&get("/status").unwrap().body).unwrap();
    assert_eq!(status["state"], "halted", "{status}");
    assert_eq!(
        (&status["stop"]["code"], &status["reason"]["code"]),
        (&CODE.into(), &"halted".into())
    );
    let connected = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    relay.wait_until("all sessions to end", || scene.sql(connected) == "0");
    // WHEN it is resumed over HTTP, with the token THEN it goes on
    let resume = "POST /api/resume";
    assert_eq!(request(admin, resume, None, "{}").0, 401);
    let (code, answer) = request(admin, resume, Some(TOKEN), "{\"reason\": \"compared\"}");
    assert_eq!((code, &answer["resumed"]["code"]), (200, &CODE.into()), "{answer}");
    scene.insert("3", "{}");
    relay.wait_until("readiness", || get("/readyz").is_ok_and(|it| it.status == 200));
    scene.wait_confirmed(&mut relay);
    assert_eq!(keys(&scene.records()), ["1", "3"]);
    let (code, answer) = request(admin, resume, Some(TOKEN), "{}");
    assert_eq!((code, &answer["code"]), (404, &"resume.nothing".into()));
    assert!(answer["help"].as_str().unwrap().contains("the relay runs"), "{answer}");
    // WHEN it is halted again THEN the command asks it, and a stop is still a stop
    open_gap(&scene);
    relay.wait_until("the stop", || get("/readyz").is_ok_and(|it| it.body.contains(CODE)));
    scene.walrelay(&["resume", "--yes"]).assert_done().assert_says(&["the relay tries to go on"]);
    relay.wait_until("readiness", || get("/readyz").is_ok_and(|it| it.status == 200));
    open_gap(&scene);
    relay.wait_until("the stop", || get("/readyz").is_ok_and(|it| it.body.contains(CODE)));
    relay.signal(rustix::process::Signal::TERM);
    relay.wait().assert_fault(4, CODE, &[]);
}

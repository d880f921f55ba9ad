//! The commands beside `run`: exit codes and what they print.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::consumer::end_offsets;

use crate::support::faults::{CliFixture, Ended, brokers};
use crate::support::session::Session;
use crate::support::shared_postgres;

/// The findings of `check --json`, as level and topic.
fn findings(scene: &CliFixture<'_>) -> (i32, bool, Vec<(String, String)>) {
    let ended = scene.walrelay(&["check", "--json"]);
    let value = ended.json();
    let text = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
    let found = value["findings"].as_array().unwrap().iter();
    let found = found.map(|found| (text(found, "level"), text(found, "topic"))).collect();
    (ended.code, value["ok"].as_bool().unwrap(), found)
}

const MADE: [&str; 6] = [
    "+ make outbox table",
    "+ make function outbox.emit for public.outbox",
    "+ make publication walrelay",
    "+ make slot commands_init",
    "+ make topic commands.init",
    "+ make topic commands.init.dlq",
];

/// The lines of what was made.
fn made(ended: &Ended) -> Vec<String> {
    ended.out.lines().filter(|line| line.starts_with('+')).map(str::to_owned).collect()
}

/// A dry run names what is missing on both sides, and makes nothing.
fn only_shown(scene: &CliFixture<'_>, found: &[(String, String)]) -> Vec<String> {
    let would = scene.walrelay(&["init", "--dry-run"]);
    would.assert_done().assert_says(&MADE);
    would.assert_says(&["dry run, nothing was made; 6 things are missing"]);
    let json = scene.walrelay(&["init", "-n", "-o", "json"]);
    let value = json.assert_done().json();
    assert_eq!(value["made"].as_array().unwrap().len(), 6, "{value}");
    assert_eq!(findings(scene).2, found);
    made(&would)
}

/// Runs `init` on a terminal, with this answer to its question. Returns what the terminal shows.
fn on_terminal(scene: &CliFixture<'_>, answer: &str) -> String {
    let config = scene.write_config();
    let command = format!("{} init -c {}", env!("CARGO_BIN_EXE_walrelay"), config.display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(scene.folder());
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), answer.as_bytes()).unwrap();
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn init_makes_what_is_missing_once_and_check_agrees() {
    let mut scene = CliFixture::bare("commands_init");
    scene.sink.push_str("topics = [\"commands.init\"]\npartitions = 3\n");
    scene.extra = "[dead_letter]\ntopic = \"commands.init.dlq\"\n".into();
    // GIVEN nothing: check names all of it, and makes none of it
    let (code, ok, found) = findings(&scene);
    assert_eq!((code, ok), (1, false));
    for topic in [
        "table.missing",
        "publication.missing",
        "slot.missing",
        "sink.topic-missing",
        "sink.dead-letter-missing",
    ] {
        assert!(found.contains(&("fail".into(), topic.into())), "{topic}: {found:?}");
    }
    assert_eq!(scene.sql("SELECT count(*) FROM pg_publication"), "0");
    let told = scene.walrelay(&["check"]);
    assert_eq!(told.code, 1, "{told}");
    told.assert_says(&[
        "✗ outbox table public.outbox does not exist",
        "help: walrelay init",
        "[slot.missing]",
        "✗ the dead-letter topic commands.init.dlq does not exist",
        "[sink.dead-letter-missing]",
        "not ready: 5 problems",
    ]);
    let would = only_shown(&scene, &found);
    // WHEN somebody on a terminal refuses THEN nothing is made
    let refused = on_terminal(&scene, "no\n");
    assert!(refused.contains("Make 6 things?"), "{refused}");
    assert!(refused.contains("not confirmed: nothing was changed"), "{refused}");
    assert_eq!(findings(&scene).2, found);
    // WHEN it is made
    let first = scene.walrelay(&["init"]);
    first.assert_done().assert_says(&MADE);
    first.assert_says(&["6 things were made; now nothing is missing"]);
    assert_eq!(would, made(&first));
    let slot = scene.slot_state();
    assert!(slot.starts_with("commands_init|pgoutput|"), "{slot}");
    assert_eq!(end_offsets(&brokers(), "commands.init").unwrap().len(), 3);
    assert_eq!(end_offsets(&brokers(), "commands.init.dlq").unwrap().len(), 3);
    // THEN a second time makes nothing and moves nothing
    let second = scene.walrelay(&["init"]);
    assert_eq!(second.assert_done().out, "nothing is missing\n");
    assert_eq!(scene.slot_state(), slot);
    summary_is_about_both_sides(&mut scene);
    let (code, ok, found) = findings(&scene);
    assert_eq!((code, ok), (0, true), "{found:?}");
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "✓ table public.outbox",
        "✓ kafka answers",
        "ready",
    ]);
}

#[test]
fn init_without_the_slot_makes_the_rest_and_reports_a_slot_that_is_missing() {
    let scene = CliFixture::bare("commands_no_slot");
    let would = scene.walrelay(&["init", "--no-slot", "--dry-run"]);
    assert_eq!(would.code, 1, "{would}");
    would.assert_says(&["+ make publication", "[slot.missing]"]);
    assert!(!would.out.contains("make slot"), "{would}");
    // WHEN it makes the rest THEN the slot is reported, with what to do about a lost one
    let made = scene.walrelay(&["init", "--no-slot"]);
    assert_eq!(made.code, 1, "{made}");
    made.assert_says(&[
        "+ make publication",
        "[slot.missing]",
        "A lost slot",
        "not ready: 1 problem",
    ]);
    assert_eq!(scene.slot_state(), "");
    let told = scene.walrelay(&["init", "--no-slot", "--json"]);
    assert_eq!(told.code, 1, "{told}");
    let value = told.json();
    assert_eq!(value["made"], serde_json::json!([]));
    assert_eq!(value["failed"][0]["topic"], "slot.missing");
    // WHEN the slot is there THEN nothing is missing
    scene.walrelay(&["init"]).assert_done().assert_says(&["1 thing was made"]);
    let slot = scene.slot_state();
    assert_eq!(scene.walrelay(&["init", "--no-slot"]).assert_done().out, "nothing is missing\n");
    assert_eq!(scene.slot_state(), slot);
}

#[test]
fn init_by_the_owner_of_the_table_finds_nothing_missing_for_the_relay_of_another_role() {
    let mut scene = CliFixture::ready("commands_owner");
    scene.sql(
        "CREATE ROLE commands_migrator LOGIN; CREATE ROLE commands_relay LOGIN REPLICATION;
         ALTER DATABASE commands_owner OWNER TO commands_migrator;
         ALTER TABLE outbox OWNER TO commands_migrator;
         ALTER PUBLICATION walrelay OWNER TO commands_migrator",
    );
    scene.url = scene.url.replace("postgres@", "commands_migrator@");
    let slot = scene.slot_state();
    for words in [&["--no-slot"][..], &[]] {
        let words = [&["init", "--role", "commands_relay", "--yes"], words].concat();
        assert_eq!(scene.walrelay(&words).assert_done().out, "nothing is missing\n");
    }
    assert_eq!(scene.slot_state(), slot);
    // AND a role that the relay would log in as needs its right
    let own = scene.walrelay(&["init", "--yes"]);
    own.assert_says(&["ALTER ROLE \"commands_migrator\" REPLICATION"]);
    assert_ne!(own.code, 0, "{own}");
}

/// A topic that is made, and a slot of another kind.
fn summary_is_about_both_sides(scene: &mut CliFixture) {
    scene.sink = scene.sink.replace("[\"", "[\"commands.more\", \"");
    let made = scene.walrelay(&["init"]);
    let text = "+ make topic commands.more\n1 thing was made; now nothing is missing\n";
    assert_eq!(made.assert_done().out, text);
    scene.sink = scene.sink.replace("[\"", "[\"commands.most\", \"");
    let agreed = on_terminal(scene, "yes\n");
    assert!(agreed.contains("1 thing was made; now nothing is missing"), "{agreed}");
    let nothing = on_terminal(scene, "");
    assert!(nothing.contains("nothing is missing") && !nothing.contains("Make"), "{nothing}");
    let (good, other) = (scene.name.clone(), "commands_init_other");
    scene.sql(&format!("SELECT pg_create_physical_replication_slot('{other}')"));
    scene.name = other.to_owned();
    let left = scene.walrelay(&["init"]);
    scene.name = good;
    scene.sql(&format!("SELECT pg_drop_replication_slot('{other}')"));
    assert_eq!(left.code, 1, "{left}");
    left.assert_says(&["[slot.physical]", "not ready: 1 problem"]);
    assert!(!left.out.contains("nothing is missing"), "{left}");
}

#[test]
fn the_sql_of_init_does_the_same_through_psql() {
    let scene = CliFixture::bare("commands_sql");
    let unknown = scene.walrelay(&["init", "--sql", "--role", "no such role"]);
    unknown.assert_fault(4, "source.role-missing", &["no such role"]);
    let script = scene.walrelay(&["init", "--sql"]);
    script.assert_done();
    assert_eq!(scene.slot_state(), "", "it was only to be printed");
    for _ in 0..2 {
        let postgres = shared_postgres();
        let mut psql = Command::new(postgres.bin_dir().unwrap().join("psql"));
        psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", &postgres.url(&scene.name)]);
        let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.out.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{script}");
    }
    let (code, ok, found) = findings(&scene);
    assert_eq!((code, ok), (0, true), "{found:?}");
}

#[test]
fn the_slot_is_made_shown_and_dropped_on_request() {
    let scene = CliFixture::bare("commands_slot");
    scene.walrelay(&["slot", "show"]).assert_fault(3, "slot.missing", &["walrelay slot create"]);
    scene.walrelay(&["slot", "create"]).assert_fault(4, "publication.missing", &["walrelay init"]);
    scene.sql("CREATE TABLE outbox (id int, payload text, aggregateid text, aggregatetype text)");
    scene.publish("TABLE public.outbox");
    // WHEN one would only look THEN there is no slot
    let would = scene.walrelay(&["slot", "create", "--dry-run", "--output", "json"]);
    let value = would.assert_done().json();
    assert_eq!((&value["dry_run"], &value["created"]), (&true.into(), &false.into()));
    assert_eq!(scene.slot_state(), "");
    scene.walrelay(&["slot", "create"]).assert_done().assert_says(&["slot commands_slot created"]);
    let again = scene.walrelay(&["slot", "create", "--dry-run"]);
    again.assert_fault(3, "slot.exists", &["walrelay slot show"]);
    let would = scene.walrelay(&["slot", "drop", "-n"]);
    would.assert_done().assert_says(&["nothing was changed", "commands_slot would be dropped"]);
    assert_ne!(scene.slot_state(), "");
    scene.walrelay(&["slot", "create"]).assert_fault(3, "slot.exists", &["walrelay slot show"]);
    let shown = scene.walrelay(&["slot", "show"]);
    shown.assert_done().assert_says(&[
        "slot commands_slot",
        "plugin pgoutput",
        "wal_status reserved",
    ]);
    let json = scene.walrelay(&["slot", "show", "--json"]);
    let value = json.assert_done().json();
    assert_eq!(value["slot"], "commands_slot");
    let confirmed = scene.slot_state().split('|').nth(3).unwrap().to_owned();
    assert_eq!(value["confirmed_flush_lsn"], confirmed);
    // WHEN it is to be dropped THEN only on purpose
    for words in [&["slot", "drop"][..], &["slot", "drop", "commands_slot"]] {
        let ended = scene.walrelay(words);
        ended.assert_fault(2, "command.unconfirmed", &["Drop slot commands_slot?", "--yes"]);
    }
    let other = scene.walrelay(&["slot", "drop", "other", "--yes"]);
    other.assert_fault(3, "slot.missing", &["slot other does not exist", "where: NAME"]);
    let other = scene.walrelay(&["slot", "show", "other"]);
    other.assert_fault(3, "slot.missing", &["where: NAME", "to list the slots: SELECT"]);
    assert_ne!(scene.slot_state(), "");
    // WHEN a slot is named THEN it is that one, whatever is configured
    scene.sql("SELECT pg_create_logical_replication_slot('commands_other', 'pgoutput')");
    scene
        .walrelay(&["slot", "show", "commands_other"])
        .assert_done()
        .assert_says(&["commands_other"]);
    scene.walrelay(&["slot", "drop", "commands_other", "-y"]).assert_done();
    assert_ne!(scene.slot_state(), "");
    let dropped = scene.walrelay(&["slot", "drop", "commands_slot", "--yes", "--output", "json"]);
    let value = dropped.assert_done().json();
    assert_eq!((&value["slot"], &value["dropped"]), (&"commands_slot".into(), &true.into()));
    assert_eq!(scene.slot_state(), "");
    scene.walrelay(&["slot", "drop", "--yes"]).assert_fault(
        3,
        "slot.missing",
        &["nothing to drop"],
    );
}

#[test]
fn completions_are_for_the_shell_that_was_named() {
    let scene = CliFixture::bare("commands_completions");
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef walrelay"), ("fish", "complete -c walrelay")]
    {
        scene.walrelay(&["completions", shell]).assert_done().assert_says(&[word]);
    }
    assert_eq!(scene.walrelay(&["completions", "tcsh-not"]).code, 2);
    // THEN bash takes what it gets
    let script = scene.walrelay(&["completions", "bash"]).out;
    let file = scene.folder().join("completions.bash");
    std::fs::write(&file, script).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
}

#[test]
fn a_slot_that_waits_for_a_transaction_says_for_which_and_has_no_time_limit() {
    let scene = CliFixture::bare("commands_wait");
    scene.make_topic(&scene.topic(), 1);
    // GIVEN a transaction that has written, and a limit for statements that is shorter
    let writer = Session::open(&scene.url).unwrap();
    let pid = writer.first_value("BEGIN; CREATE TABLE written (); SELECT pg_backend_pid()::text");
    let pid = pid.unwrap().unwrap();
    scene.sql("ALTER DATABASE commands_wait SET statement_timeout = '1s'");
    for words in [&["init"] as &[&str], &["slot", "create"]] {
        let mut made = scene.spawn(words);
        made.wait_to_say(&format!("the oldest: transaction of pid {pid} "));
        // WHEN it ends THEN the slot is made
        writer.first_value("ROLLBACK").unwrap();
        made.wait().assert_done();
        assert!(scene.slot_state().starts_with("commands_wait|"));
        scene.walrelay(&["slot", "drop", "--yes"]).assert_done();
        writer.first_value("BEGIN; CREATE TABLE written ()").unwrap();
        // WHEN the command is interrupted instead THEN nothing makes the slot later
        let mut made = scene.spawn(words);
        made.wait_to_say(&format!("the oldest: transaction of pid {pid} "));
        made.signal(Signal::INT);
        let ended = made.wait();
        assert!(ended.code != 0 && ended.all().contains("canceling statement"), "{ended}");
        assert_eq!(scene.slot_state(), "");
    }
}

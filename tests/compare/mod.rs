//! `walrelay compare`: what it counts, and that nothing of it stays.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::{Postgres, PostgresOptions};

use crate::console::Browser;
use crate::support::faults::{CliFixture, Ended, LIMIT, Relay, shared_topics};
use crate::support::{query, shared_rabbitmq, until, wait_until, whole_machine};

const INTERVALS: &str = "200ms";
/// A short comparison takes about fifteen seconds on a quiet machine.
const DONE_WITHIN: Duration = Duration::from_secs(240);
const RATE: u64 = 200;
const SECONDS: u64 = 3;
const BACKLOG: u64 = 2000;

fn rabbit(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::bare(name);
    let url = shared_rabbitmq().amqp_url();
    scene.sink = format!(
        "[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = {url:?}\nexchange = \"never.made\"\n"
    );
    scene
}

fn start(scene: &CliFixture<'_>, duration: &str, more: &[&str]) -> Relay {
    let (rate, backlog) = (RATE.to_string(), BACKLOG.to_string());
    let words = ["compare", "--rates", &rate, "--intervals", INTERVALS, "--duration", duration];
    let mut words = words.to_vec();
    words.extend(["--backlog", &backlog]);
    words.extend(more);
    scene.spawn(&words)
}

/// The name under which everything was made, as it was announced.
#[track_caller]
fn name_of(said: &str) -> String {
    let (_, rest) = said.split_once("under the name ").unwrap_or_else(|| panic!("{said}"));
    rest.split(',').next().unwrap().to_owned()
}

#[track_caller]
fn announced(relay: &Relay) -> String {
    wait_until("its name", || relay.said().contains("under the name"));
    name_of(&relay.said())
}

/// The objects of any comparison that are left in this database.
fn left(scene: &CliFixture<'_>) -> String {
    scene.sql(
        "SELECT coalesce(string_agg(name, ' '), '') FROM (
            SELECT nspname::text FROM pg_namespace UNION ALL SELECT pubname FROM pg_publication
            UNION ALL SELECT slot_name FROM pg_replication_slots WHERE database = current_database()
         ) AS found (name) WHERE name LIKE 'walrelay\\_compare\\_%'",
    )
}

#[track_caller]
fn assert_gone(scene: &CliFixture<'_>, name: &str) {
    assert_eq!(left(scene), "");
    if scene.sink.contains("rabbitmq") {
        let names = "{rabbit_amqqueue:list_names(), rabbit_exchange:list_names()}";
        let listed = shared_rabbitmq().eval(names).unwrap();
        assert!(!listed.contains(name), "{listed}");
    } else {
        // A topic is deleted in the background.
        wait_until("the topic to be gone", || !shared_topics().iter().any(|topic| topic == name));
    }
}

/// Counts as they must be without a fault, in runs and drains.
#[track_caller]
fn assert_clean(counted: &Value, ended: &Ended) {
    for name in ["missing", "duplicated", "out_of_order"] {
        assert_eq!(counted[name], 0, "{name}\n{ended}");
    }
    assert!(counted["relay"]["rss_peak_bytes"].as_u64().unwrap() > 1 << 20, "{ended}");
    assert!(counted["postgres"]["cpu_s"].is_number(), "the database is on this machine\n{ended}");
}

#[track_caller]
fn assert_compares(scene: &CliFixture<'_>, sink: &str) {
    let _turn = whole_machine();
    // WHEN both are compared
    let page = scene.folder().join("page.html");
    let page_text = page.display().to_string();
    let relay = start(scene, &format!("{SECONDS}s"), &["--json", "--html", &page_text]);
    let ended = relay.wait_within(DONE_WITHIN);
    ended.assert_done();
    // THEN standard output is the report and nothing else
    let value = ended.json();
    assert_eq!(value["sink"], sink);
    assert_eq!(value["machine"]["database_is_local"], true);
    let (runs, drains) = (value["runs"].as_array().unwrap(), value["drains"].as_array().unwrap());
    assert_eq!((runs.len(), drains.len()), (2, 2), "{ended}");
    for (run, mode) in runs.iter().zip(["cdc", "polling"]) {
        assert_eq!(run["mode"], mode);
        assert_eq!(run["events"], RATE * SECONDS, "{ended}");
        assert_clean(run, &ended);
        let of = |part: &str| run["latency_ms"][part].as_f64().unwrap();
        assert!(0.0 < of("p50") && of("p50") <= of("p99") && of("p99") <= of("max"), "{ended}");
        let written: u64 =
            run["seconds"].as_array().unwrap().iter().map(|s| s["written"].as_u64().unwrap()).sum();
        assert_eq!(written, RATE * SECONDS);
    }
    for drain in drains {
        assert_eq!(drain["events"], BACKLOG);
        assert_clean(drain, &ended);
    }
    // The slot changes no row.
    assert_eq!(runs[0]["postgres"]["tuples_written"], 0, "{ended}");
    assert_eq!(runs[0]["postgres"]["dead_tuples"], 0, "{ended}");
    // Polling claims each, and marks it.
    let written = runs[1]["postgres"]["tuples_written"].as_u64().unwrap();
    assert!(written >= 2 * RATE * SECONDS, "{ended}");
    assert_draws(&scene.name, &page_text);
    // AND nothing of it stays
    assert_gone(scene, &name_of(&ended.err));
}

/// The page draws a line for each mode in each of its plots, and the browser complains about nothing.
#[track_caller]
fn assert_draws(name: &str, page: &str) {
    let browser = Browser::open(name);
    browser.go(&format!("file://{page}"));
    browser.wait(
        "const lines = [...document.querySelectorAll('path.line')]; \
         return lines.length === 8 && lines.every(line => line.getAttribute('d').includes('L'))",
    );
    browser
        .wait_text("#plot-latency-0 .readout", |text| text.contains("CDC ") && !text.contains('–'));
    browser.click("#plot-p99-0 summary");
    browser.wait("return document.querySelectorAll('#plot-p99-0 tbody tr').length >= 3");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn on_kafka_nothing_is_lost_doubled_or_left() {
    assert_compares(&CliFixture::bare("compare_kafka"), "kafka");
}

#[test]
#[ignore = "soak"]
fn on_rabbitmq_nothing_is_lost_doubled_or_left() {
    assert_compares(&rabbit("compare_rabbit"), "rabbitmq");
}

/// Waits until the relay of a run is seen there: the table of that run is made by then.
#[track_caller]
fn wait_for_relay(scene: &CliFixture<'_>, name: &str, view: &str) {
    let seen = format!("SELECT count(*) > 0 FROM {view} WHERE application_name = '{name}_relay'");
    wait_until("its relay", || scene.sql(&seen) == "t");
}

/// Starts a long comparison and waits until its relay streams.
#[track_caller]
fn under_way(scene: &CliFixture<'_>) -> (Relay, String) {
    let relay = start(scene, "10m", &[]);
    let name = announced(&relay);
    // A slot is active while it is being made, too.
    wait_for_relay(scene, &name, "pg_stat_replication");
    (relay, name)
}

#[test]
fn an_interrupted_comparison_takes_everything_away() {
    for (scene, signal) in
        [(CliFixture::bare("compare_int"), Signal::INT), (rabbit("compare_term"), Signal::TERM)]
    {
        let (relay, name) = under_way(&scene);
        relay.signal(signal);
        relay.wait().assert_fault(1, "compare.interrupted", &["removing what was made"]);
        assert_gone(&scene, &name);
    }
}

/// Ends a comparison in its second run, which would warm up for most of a minute.
#[track_caller]
fn cut_short(scene: &CliFixture<'_>, page: &str, end: impl Fn(&Relay, &str)) -> (Ended, String) {
    let intervals = ["compare", "--rates", "100", "--intervals", "50s", "--duration", "1s"];
    let relay = scene.spawn(&[&intervals[..], &["--json", "--html", page]].concat());
    let said = || relay.said().contains("polling 50 s at 100/s").then_some(());
    until("the second run", LIMIT, said);
    let name = name_of(&relay.said());
    wait_for_relay(scene, &name, "pg_stat_activity");
    end(&relay, &name);
    (relay.wait_within(DONE_WITHIN), name)
}

#[test]
#[ignore = "soak"]
fn what_was_finished_before_a_comparison_ended_is_given_and_called_incomplete() {
    let interrupted = CliFixture::bare("compare_cut");
    let broken = rabbit("compare_broken");
    let refuse = |_: &Relay, name: &str| {
        broken.sql(&format!(
            "CREATE FUNCTION {name}.refuse() RETURNS trigger LANGUAGE plpgsql
                AS $$ BEGIN RAISE EXCEPTION 'no more events'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON {name}.outbox
                EXECUTE FUNCTION {name}.refuse()"
        ));
    };
    let interrupt = |relay: &Relay, _: &str| relay.signal(Signal::INT);
    for (scene, end, exit, code, why) in [
        (&interrupted, &interrupt as &dyn Fn(&Relay, &str), 1, "compare.interrupted", "SIGINT"),
        (&broken, &refuse, 4, "source.query", "no more events"),
    ] {
        // GIVEN a run that is finished WHEN the next one ends early
        let page = scene.folder().join("page.html");
        let (ended, name) = cut_short(scene, &page.display().to_string(), end);
        // THEN the fault is told, and how far it came
        ended.assert_fault(exit, code, &[why]);
        let value = ended.json();
        let incomplete = value["incomplete"].as_str().unwrap();
        assert!(incomplete.starts_with("1 of 2 runs and 0 of 2 drains were finished"), "{ended}");
        assert!(incomplete.contains(why), "{ended}");
        let runs = value["runs"].as_array().unwrap();
        assert_eq!((runs.len(), &runs[0]["events"]), (1, &Value::from(100)), "{ended}");
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains("This comparison is incomplete: 1 of 2 runs"), "{page}");
        // AND nothing of it stays
        assert_gone(scene, &name);
    }
}

#[track_caller]
fn one_run(scene: &CliFixture<'_>, duration: &str) -> (Relay, String) {
    let words = ["compare", "--rates", "100", "--intervals", "none", "--backlog", "0"];
    let relay = scene.spawn(&[&words[..], &["--json", "--duration", duration]].concat());
    let name = announced(&relay);
    wait_for_relay(scene, &name, "pg_stat_activity");
    (relay, name)
}

#[test]
#[ignore = "soak"]
fn a_whole_report_is_given_though_something_cannot_be_removed() {
    // GIVEN a run that is under way in a database that lets nothing be dropped
    let scene = CliFixture::bare("compare_kept");
    let (relay, name) = one_run(&scene, "10s");
    scene.sql(
        "CREATE FUNCTION keep() RETURNS event_trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'nothing is dropped here'; END $$;
         CREATE EVENT TRIGGER keep ON sql_drop EXECUTE FUNCTION keep()",
    );
    // WHEN it is done
    let ended = relay.wait();
    // THEN its figures are there, and what is left is told with what removes it
    let remove = format!("DROP SCHEMA IF EXISTS \"{name}\" CASCADE;");
    ended.assert_fault(4, "compare.left-over", &["nothing is dropped here", &remove]);
    let value = ended.json();
    assert_eq!(value["runs"].as_array().unwrap().len(), 1, "{ended}");
    assert!(value["incomplete"].is_null(), "{ended}");
    // AND that does
    scene.sql("DROP EVENT TRIGGER keep");
    scene.sql(&format!("DROP PUBLICATION IF EXISTS \"{name}\"; {remove}"));
    assert_gone(&scene, &name);
}

#[test]
#[ignore = "soak"]
fn a_second_signal_ends_the_tidying_up_and_tells_what_is_left() {
    // GIVEN a scratch table that is in use by somebody else
    let scene = CliFixture::bare("compare_twice");
    let (relay, name) = one_run(&scene, "10m");
    let in_use = format!("LOCK TABLE {name}.outbox IN ACCESS SHARE MODE; SELECT pg_sleep(600)");
    let waits = |granted: bool| {
        format!(
            "SELECT count(*) > 0 FROM pg_locks WHERE relation = '{name}.outbox'::regclass
                AND mode = '{}' AND granted = {granted}",
            if granted { "AccessShareLock" } else { "AccessExclusiveLock" }
        )
    };
    let url = scene.url.clone();
    // Not joined: a test that fails would wait for it.
    std::thread::spawn(move || query(&url, &in_use).ok());
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE%'";
    wait_until("it to be in use", || scene.sql(sleeps) == "1" && scene.sql(&waits(true)) == "t");
    // WHEN it is interrupted, waits for that table, and is interrupted again
    relay.signal(Signal::INT);
    wait_until("the removal to wait", || scene.sql(&waits(false)) == "t");
    // THEN it ends, and tells what removes the rest
    let ended = relay.signal_until_end(Signal::INT);
    ended.assert_fault(
        1,
        "compare.interrupted",
        &["error[compare.left-over]", "by a second signal"],
    );
    ended.assert_says(&[
        &format!("DROP SCHEMA IF EXISTS \"{name}\" CASCADE;"),
        &format!("kafka-topics.sh --bootstrap-server … --delete --topic {name}"),
    ]);
    assert_eq!(ended.out, "", "nothing was finished");
    scene.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE query LIKE 'LOCK TABLE%' AND datname = current_database() AND pid <> pg_backend_pid()",
    );
}

#[test]
fn a_server_that_is_away_at_the_end_is_waited_for() {
    // GIVEN a comparison whose server crashes
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    postgres.create_database("compare_away").unwrap();
    let mut scene = CliFixture::bare("compare_away");
    scene.url = postgres.url("compare_away");
    let slots = |active: &str| {
        let slots = format!("SELECT count(*) FROM pg_replication_slots WHERE active = {active}");
        query(&scene.url, &slots).unwrap().unwrap()
    };
    let words = ["compare", "--intervals", "none", "--backlog", "0", "--duration", "10m"];
    let relay = scene.spawn(&words);
    wait_until("its relay", || slots("true") == "1");
    postgres.crash().unwrap();
    wait_until("the removal to begin", || relay.said().contains("removing what was made"));
    // WHEN the server comes back
    postgres.start_again().unwrap();
    // THEN nothing stays there, above all no slot
    let ended = relay.wait();
    assert!(ended.code != 0 && !ended.all().contains("left-over"), "{ended}");
    assert_eq!(slots("active"), "0");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'walrelay%'";
    assert_eq!(query(&scene.url, schemas).unwrap().as_deref(), Some("0"));
}

#[test]
#[ignore = "soak"]
fn what_a_killed_comparison_left_is_removed_by_the_next() {
    let scene = CliFixture::bare("compare_kill");
    // GIVEN a comparison that had no time to tidy up
    let (relay, name) = under_way(&scene);
    relay.signal(Signal::KILL);
    relay.wait();
    // THEN its relay stops by itself, which is all that can be had of the dead
    let reads =
        format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}_relay'");
    wait_until("its relay to stop", || scene.sql(&reads) == "0");
    assert!(left(&scene).contains(&name));
    // WHEN another one runs THEN it finds and removes what is left
    let (relay, second) = under_way(&scene);
    let said = relay.said();
    assert!(said.contains(&format!("removed {name}, left behind")), "{said}");
    assert!(!left(&scene).contains(&name));
    relay.signal(Signal::INT);
    relay.wait();
    assert_gone(&scene, &second);
    assert_gone(&scene, &name);
}

#[test]
fn what_cannot_be_compared_is_told_before_anything_is_made() {
    let mut scene = CliFixture::bare("compare_bad");
    let bad = scene.walrelay(&["compare", "--rates", "1,x", "--intervals", "5", "--duration", "1"]);
    bad.assert_fault(
        2,
        "compare.bad-value",
        &["--rates 100,1000", "--intervals", "--duration 30s"],
    );
    let endless = scene.walrelay(&["compare", "--rates", "5000", "--duration", "24h"]);
    endless.assert_fault(2, "compare.bad-value", &["events; 20000000 are the most"]);
    // GIVEN a publication that would carry the load to others
    scene.sql("CREATE PUBLICATION everything FOR ALL TABLES");
    scene.walrelay(&["compare"]).assert_fault(4, "compare.all-tables", &["everything"]);
    scene.sql("DROP PUBLICATION everything");
    scene.sql("SELECT pg_create_logical_replication_slot('compare_bad_other', 'test_decoding')");
    scene.walrelay(&["compare"]).assert_fault(4, "compare.other-plugin", &["compare_bad_other"]);
    scene.sql("SELECT pg_drop_replication_slot('compare_bad_other')");
    let page = ["compare", "--html", "/no/such/folder/page.html"];
    scene.walrelay(&page).assert_fault(2, "output.unwritable", &["--html"]);
    scene.walrelay(&["compare-relay"]).assert_fault(2, "compare.no-order", &[]);
    // GIVEN a role that may replicate and make nothing
    scene.sql("DROP ROLE IF EXISTS compare_poor; CREATE ROLE compare_poor LOGIN REPLICATION");
    let url = scene.url.clone();
    scene.url = url.replace("postgres@", "compare_poor@");
    let refused = scene.walrelay(&["compare"]);
    refused.assert_fault(
        4,
        "compare.permission",
        &["GRANT CREATE ON DATABASE \"compare_bad\" TO \"compare_poor\";"],
    );
    scene.sql("ALTER ROLE compare_poor NOREPLICATION");
    scene.walrelay(&["compare"]).assert_fault(4, "source.role", &["REPLICATION"]);
    scene.url = url;
    scene.sink = "[sink.kafka]\nbrokers = \"127.0.0.1:1\"\n".to_owned();
    scene.walrelay(&["compare"]).assert_fault(5, "sink.unreachable", &["127.0.0.1:1"]);
    scene.sink = "[sink]\nkind = \"memory\"\n".to_owned();
    scene.walrelay(&["compare"]).assert_fault(2, "sink.no-scratch", &["kafka"]);
    assert_eq!(left(&scene), "");
}

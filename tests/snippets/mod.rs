//! The programs of docs/writing-events.md, as they stand there: built, run, and their events read from Kafka.
//!
//! A program is taken from the page and put into the skeleton of its language, which has the manifest
//! and nothing else. What the skeletons need from package registries is fetched by `scripts/setup`.

mod page;
pub(crate) mod tools;

use walrelay_harness::{Postgres, PostgresOptions};

use self::page::{block, project};
use self::tools::{Program, Set, link_modules, run};
use crate::support::faults::{CliFixture, TopicRecord};

const EMIT_SQL: &str = include_str!("../../sql/emit.sql");
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const HEADERS: [&str; 5] = ["id", "event_type", "traceparent", "commit_ts", "lsn"];

/// Refuses large orders at the commit, when everything of the transaction is written.
const LIMIT_SQL: &str = "
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'refused with % event', (SELECT count(*) FROM public.outbox WHERE aggregateid = NEW.id::text);
END $$;
CREATE CONSTRAINT TRIGGER large AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.total > 1000) EXECUTE FUNCTION refuse();";

/// A database with outbox, function, publication and orders; its topic is `NAME.order`.
fn scene(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::ready(name);
    scene.route = format!("topic = \"{name}.${{aggregatetype}}\"");
    scene.make_topic(&topic(&scene), 1);
    scene.sql(EMIT_SQL);
    scene.sql(&block("orders.sql"));
    scene.sql(LIMIT_SQL);
    scene
}

fn topic(scene: &CliFixture<'_>) -> String {
    format!("{}.order", scene.name)
}

#[track_caller]
fn assert_event(record: &TopicRecord, key: &str, kind: &str, payload: &str) {
    assert_eq!((record.key(), record.text()), (Some(key), payload.to_owned().as_str()));
    assert_eq!(record.header("event_type"), Some(kind));
}

/// Runs a program three times: an order with a trace, one without, and one that is refused.
#[track_caller]
fn assert_emits(name: &str, program: &Program) {
    let scene = scene(name);
    let place = |order: &str, total: &str, trace: Option<&str>| {
        run(&program.placing(&scene, order, total, trace))
    };
    let traced = place("4711", "12.50", Some(TRACE)).assert_done();
    let plain = place("4712", "7.00", None).assert_done();
    // WHEN the commit fails THEN the event had been written
    let refused = place("4713", "5000.00", Some(TRACE));
    assert!(refused.code != 0 && refused.err.contains("refused with 1 event"), "{refused}");
    // THEN orders and events are those of the two commits
    assert_eq!(
        scene.sql("SELECT string_agg(id || ' ' || total, ', ' ORDER BY id) FROM orders"),
        "4711 12.50, 4712 7.00"
    );
    let records = scene.carry(&[&topic(&scene)]);
    let [first, second] = &records[..] else { panic!("{records:?}") };
    assert_event(first, "4711", "OrderPlaced", r#"{"order": 4711, "total": "12.50"}"#);
    assert_event(second, "4712", "OrderPlaced", r#"{"order": 4712, "total": "7.00"}"#);
    assert_eq!(first.header_names(), HEADERS);
    assert_eq!(first.header("traceparent"), Some(TRACE));
    assert_eq!(second.header_names(), ["id", "event_type", "commit_ts", "lsn"]);
    // THEN the ids are what the programs were told
    let ids = [first, second].map(|record| record.header("id"));
    assert_eq!(ids, [Some(traced.trim()), Some(plain.trim())]);
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn sql() {
    let scene = scene("snippet_sql");
    for statements in ["trace.sql", "emit.sql", "lock.sql"] {
        if statements == "emit.sql" {
            scene.sql("DELETE FROM orders");
        }
        scene.sql(&block(statements));
    }
    let records = scene.carry(&[&topic(&scene)]);
    let [trace, emit, lock] = &records[..] else { panic!("{records:?}") };
    for record in [trace, emit] {
        assert_event(record, "4711", "OrderPlaced", r#"{"order": 4711, "total": "12.50"}"#);
        assert_eq!(record.header("traceparent"), Some(TRACE));
    }
    assert_event(lock, "4711", "OrderChanged", r#"{"order": 4711, "total": "15.00"}"#);
    assert_eq!((emit.header("tenant"), lock.header("traceparent")), (Some("blue"), None));
}

#[test]
fn the_function_that_init_makes_is_published_from_on_18() {
    // GIVEN the newest Postgres, and an outbox with names of its own
    let options = PostgresOptions { version: Some(18), ..PostgresOptions::default() };
    let postgres = Postgres::start(options).unwrap();
    let mut scene = CliFixture::on(&postgres, "snippet_init");
    scene.source = "[[source.outbox]]\ntable = \"sales.events\"\n\
                    columns = { key = \"customer\", type = \"kind\", payload = \"body\" }\n"
        .into();
    scene.route = "topic = \"snippet_init.${aggregatetype}\"".into();
    scene.make_topic(&topic(&scene), 1);
    // THEN the SQL is printed before it is run
    let printed = scene.walrelay(&["init", "--emit", "--sql"]);
    printed
        .assert_done()
        .assert_says(&["CREATE OR REPLACE FUNCTION outbox.emit(", "\"sales\".\"events\" (\"id\","]);
    let would = scene.walrelay(&["init", "--dry-run"]);
    assert!(!would.assert_done().out.contains("outbox.emit"), "{would}");
    let made = scene.walrelay(&["init", "--emit"]);
    made.assert_done().assert_says(&["+ make function outbox.emit for sales.events"]);
    let again = scene.walrelay(&["init", "--emit"]);
    assert_eq!(again.assert_done().out, "nothing is missing\n");
    // WHEN an event is emitted THEN it arrives with the id that was told
    let id = scene.sql("SELECT outbox.emit('order', '7', 'Placed', '{\"n\": 1}')");
    let records = scene.carry(&[&topic(&scene)]);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_event(record, "7", "Placed", r#"{"n": 1}"#);
    assert_eq!(record.header("id"), Some(id.as_str()));
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn rust() {
    let files = ["diesel", "sqlx", "tokio_postgres"].map(|name| format!("src/bin/{name}.rs"));
    let folder =
        project("rust", &["Cargo.toml", "Cargo.lock"], &files.each_ref().map(String::as_str));
    let target = folder.join("target");
    let build =
        Program::new("cargo", &folder).with(&["build", "--locked", "--quiet", "--target-dir"]);
    run(&build.with(&[target.to_str().unwrap()]).slow()).assert_done();
    for name in ["diesel", "sqlx", "tokio-postgres"] {
        let program = Program::new(target.join("debug").join(name), &folder);
        assert_emits(&format!("snippet_{}", name.replace('-', "_")), &program);
    }
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn go() {
    let folder = project("go", &["go.mod", "go.sum"], &["main.go"]);
    let build = Program::new("go", &folder)
        .with(&["build", "-o", "place-order", "."])
        .env("GOMODCACHE", Set::Snippets.cached("go", "go.sum", "mod"))
        .env("GOCACHE", folder.join("cache"))
        .env("GOFLAGS", "-mod=readonly")
        .env("GOPROXY", "off");
    run(&build.slow()).assert_done();
    assert_emits("snippet_go", &Program::new(folder.join("place-order"), &folder));
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn java() {
    let folder = project("java", &[], &["PlaceOrder.java"]);
    let jars = format!("{}/*", Set::Snippets.cached("java", "pom.xml", "lib").display());
    let compile =
        Program::new("javac", &folder).with(&["-d", "classes", "-cp", &jars, "PlaceOrder.java"]);
    run(&compile.slow()).assert_done();
    let path = format!("classes:{jars}");
    let java = Program::new("java", &folder).with(&[
        "-XX:TieredStopAtLevel=1",
        "-cp",
        &path,
        "PlaceOrder",
    ]);
    assert_emits("snippet_java", &java);
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn python() {
    let files = ["place_order_django.py", "place_order_sqlalchemy.py"];
    let folder = project("python", &[], &files);
    let library = Set::Snippets.cached("python", "requirements.txt", "lib");
    for (name, file) in ["snippet_django", "snippet_sqlalchemy"].iter().zip(files) {
        let python = Program::new("python3", &folder).with(&[file]).env("PYTHONPATH", &library);
        assert_emits(name, &python);
    }
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn node() {
    let folder = project("node", &[], &["place-order.mjs"]);
    link_modules(Set::Snippets, &folder);
    assert_emits("snippet_node", &Program::new("node", &folder).with(&["place-order.mjs"]));
}

#[test]
fn every_program_of_the_page_is_run() {
    let run = include_str!("mod.rs");
    for name in page::names() {
        let file = name.rsplit_once('/').map_or(name.as_str(), |(_, file)| file);
        let stem = file.trim_end_matches(".rs");
        assert!(
            run.contains(&format!("\"{stem}\"")) || run.contains(&format!("\"{file}\"")),
            "{name} is not run"
        );
    }
}

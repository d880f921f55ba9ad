//! Programs with libraries of others: outbox libraries write into the tables that they have made, and the relay carries
//! it with what `config detect` prints; a serializer's bytes pass through.
//!
//! `scripts/setup --libraries` fetches what the programs need from package registries.

use std::path::PathBuf;

use crate::snippets::tools::{Program, Set, link_modules, run, write};
use crate::support::faults::{CliFixture, brokers, read};

/// Event that a library has written, as a record.
struct Event<'a> {
    topic: &'a str,
    /// None where the table has no key: the id is the key.
    key: Option<&'a str>,
    kind: Option<&'a str>,
    value: &'a str,
}

/// The value in a `jsonb` column.
const STORED: &str = r#"{"name": "Größe", "order": 7}"#;

/// A folder with files of the tree.
#[track_caller]
fn project(language: &str, files: &[&str]) -> PathBuf {
    let folder = Set::Libraries.place(language);
    for file in files {
        write(&folder.join(file), &Set::Libraries.file(language, file));
    }
    folder
}

/// Carries an event that a library writes for a destination into the table that it has made. `more` is appended to
/// the section that is detected.
#[track_caller]
fn assert_carried(name: &str, destination: &str, program: &Program, more: &str, event: &Event<'_>) {
    let mut scene = CliFixture::bare(name);
    let (url, jdbc) = (scene.url.clone(), jdbc(&scene));
    let step = |step: &str| {
        let program = program.clone().with(&[step, destination]);
        run(&program.env("DATABASE_URL", &url).env("JDBC_URL", &jdbc)).assert_done()
    };
    step("create");
    // GIVEN what detect prints, appended to a configuration with source.url and a sink
    scene.make_topic(event.topic, 1);
    let detected = scene.walrelay(&["config", "detect"]);
    detected.assert_done();
    scene.source = format!("{}{more}", detected.out);
    scene.walrelay(&["init"]).assert_done();
    scene.walrelay(&["check"]).assert_done();
    // WHEN the library writes
    let id = step("write").trim().to_owned();
    // THEN destination, key, body and id are those of the record
    let records = scene.carry(&[event.topic]);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(record.header("id"), Some(id.as_str()));
    assert_eq!(record.key(), Some(event.key.unwrap_or(&id)));
    assert_eq!(record.text(), event.value);
    assert_eq!(record.header("event_type"), event.kind);
}

fn jdbc(scene: &CliFixture<'_>) -> String {
    let place = scene.url.split_once('@').unwrap().1;
    format!("jdbc:postgresql://{place}?user=postgres")
}

fn python(file: &str) -> Program {
    let library = Set::Libraries.cached("python", "requirements.txt", "lib");
    Program::new("python3", &project("python", &[file])).with(&[file]).env("PYTHONPATH", library)
}

#[test]
#[ignore = "soak"]
fn faststream_outbox() {
    let (topic, value) = ("library.faststream", r#"{"order":7,"name":"Größe"}"#);
    let event = Event { topic, key: None, kind: None, value };
    let program = python("faststream_outbox_event.py");
    assert_carried("library_faststream", topic, &program, "", &event);
}

#[test]
#[ignore = "soak"]
fn django_outbox_pattern() {
    let event = Event { topic: "library.django.v1", key: None, kind: None, value: STORED };
    let program = python("django_outbox_pattern_event.py");
    assert_carried("library_django", "library.django", &program, "", &event);
}

fn node(file: &str) -> Program {
    let folder = project("node", &["package.json", file]);
    link_modules(Set::Libraries, &folder);
    Program::new("node", &folder).with(&[file])
}

#[test]
#[ignore = "soak"]
fn pg_transactional_outbox() {
    let (topic, kind) = ("outbox.event.library_movie", Some("movie_created"));
    let event = Event { topic, key: Some("movie-1"), kind, value: STORED };
    let program = node("pg-transactional-outbox.mjs");
    assert_carried("library_pg_transactional", "library_movie", &program, "", &event);
}

/// Its topic is the name of the table, which another test has; so the route is replaced.
#[test]
#[ignore = "soak"]
fn emmett() {
    let (topic, kind) = ("library.emt_messages", Some("OrderPlaced"));
    let route = "route = { topic = \"library.${table}\" }\n";
    let event = Event { topic, key: Some("cart-1"), kind, value: STORED };
    assert_carried("library_emmett", "cart-1", &node("emmett.mjs"), route, &event);
}

#[test]
#[ignore = "soak"]
fn message_db() {
    let (topic, kind) = ("messages", Some("OrderPlaced"));
    let event = Event { topic, key: Some("account-123"), kind, value: STORED };
    assert_carried("library_message_db", "account-123", &node("message-db.mjs"), "", &event);
}

#[test]
#[ignore = "soak"]
fn watermill() {
    let folder = project("go", &["go.mod", "go.sum", "main.go"]);
    let build = Program::new("go", &folder)
        .with(&["build", "-o", "watermill", "."])
        .env("GOMODCACHE", Set::Libraries.cached("go", "go.sum", "mod"))
        .env("GOCACHE", folder.join("cache"))
        .env("GOFLAGS", "-mod=readonly")
        .env("GOPROXY", "off");
    run(&build.slow()).assert_done();
    let (topic, value) = ("watermill_library_orders", r#"{"order": 7, "name": "Größe"}"#);
    let event = Event { topic, key: None, kind: None, value };
    let program = Program::new(folder.join("watermill"), &folder);
    assert_carried("library_watermill", "library_orders", &program, "", &event);
}

/// A program that is compiled when it is started.
fn java(folder: &str, file: &str) -> Program {
    let jars = format!("{}/*", Set::Libraries.cached(folder, "pom.xml", "lib").display());
    let folder = project(folder, &[file]);
    Program::new("java", &folder).with(&["-XX:TieredStopAtLevel=1", "-cp", &jars, file]).slow()
}

#[test]
#[ignore = "soak"]
fn eventuate() {
    let (topic, value) = ("library.eventuate", r#"{"order": 7, "name": "Größe"}"#);
    let event = Event { topic, key: Some("order-7"), kind: None, value };
    let program = java("eventuate", "Eventuate.java");
    assert_carried("library_eventuate", topic, &program, "", &event);
}

#[test]
#[ignore = "soak"]
fn bytes_of_avro_and_protobuf_pass_through() {
    let scene = CliFixture::bare("serializers");
    scene.sql(
        "CREATE TABLE public.outbox (id uuid, aggregatetype text, aggregateid text, type text, payload bytea)",
    );
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    let topics = ["outbox.event.serialized_avro", "outbox.event.serialized_protobuf"];
    topics.iter().for_each(|topic| scene.make_topic(topic, 1));
    // GIVEN an empty registry, and an application that serializes with its schemas
    let program = java("java", "Serializers.java");
    let schemas = Set::Libraries.place("java").join("schemas");
    if schemas.exists() {
        std::fs::remove_dir_all(schemas).unwrap();
    }
    let step = |step: &str| {
        let program = program.clone().with(&[step, "serialized_avro", "serialized_protobuf"]);
        run(&program.env("JDBC_URL", jdbc(&scene)).env("BROKERS", brokers())).assert_done()
    };
    let written = step("write");
    // THEN the bytes that it has written are the values
    scene.carry(&[]);
    for (topic, hex) in topics.iter().zip(written.lines()) {
        let records = read(&[topic]);
        let [record] = &records[..] else { panic!("{records:?}") };
        let value: String =
            record.value.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(value, hex);
        // The magic byte and the id of the schema, as every deserializer expects them.
        assert!(value.starts_with("00000000"), "{value}");
    }
    // THEN another process reads the events with the deserializers
    assert_eq!(
        step("read"),
        "order-7 {\"number\": 7, \"name\": \"Größe\"}\n\
         order-7 currency_code: \"EUR\" units: 12 nanos: 500000000\n"
    );
}

//! The records of Debezium Server and of the relay for the same rows, with other types of columns, and
//! with columns in headers and in the envelope.

use super::server::{BINARY, Server, TEXT};
use crate::support::faults::{CliFixture, TopicRecord, read};

/// An outbox and its rows, and how both publish it.
struct Case {
    name: &'static str,
    table: &'static str,
    rows: &'static str,
    /// The properties of Debezium Server.
    properties: &'static [&'static str],
    /// The route of the relay.
    route: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        name: "debezium_text",
        table: "id bigint PRIMARY KEY, aggregatetype text, aggregateid uuid, type text, payload text",
        rows: r#"(1, 'T', '6f1d9a52-3c0e-4c57-9d0b-2a6f0c9b7e11', 'Placed', '{"total": 12.50}'),
                 (2, 'T', '0b8f8d1c-0d53-4c3f-9a6f-1f2f3a4b5c6d', 'Größe', E'no "JSON"\n€'),
                 (3, 'T', '0b8f8d1c-0d53-4c3f-9a6f-1f2f3a4b5c6d', '', ''),
                 (4, 'T', '0b8f8d1c-0d53-4c3f-9a6f-1f2f3a4b5c6d', '42', NULL),
                 (5, 'T', NULL, 'Placed', 'without a key')"#,
        properties: &[
            TEXT,
            "debezium.transforms.outbox.table.fields.additional.placement=type:header:eventType",
        ],
        route: "headers = { eventType = \"${type}\" }\n",
    },
    Case {
        name: "debezium_bytes",
        table: "id text PRIMARY KEY, aggregatetype text, aggregateid int, type text, payload bytea",
        rows: r"('e-1', 'T', 7, 'Placed', '\x00ff007f0a'), ('e-2', 'T', -1, 'Placed', ''),
                ('ü', 'T', 2147483647, 'Placed', NULL)",
        properties: &[BINARY],
        route: "",
    },
    Case {
        name: "debezium_envelope",
        table: "id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text,
                n int, big bigint, done boolean",
        rows: r#"('6f1d9a52-3c0e-4c57-9d0b-2a6f0c9b7e11', 'T', 'k-1', 'Placed', E'"a"\\/\n\t€ü\u0001', 7, 9007199254740993, true),
                 ('0b8f8d1c-0d53-4c3f-9a6f-1f2f3a4b5c6d', 'T', 'k-1', '', '', -1, NULL, false)"#,
        properties: &[
            "debezium.format.value=json",
            "debezium.format.value.schemas.enable=false",
            "debezium.sink.kafka.producer.value.serializer=org.apache.kafka.common.serialization.StringSerializer",
            "debezium.transforms.outbox.table.fields.additional.placement=big:envelope,done:envelope,type:envelope:eventType,n:envelope",
        ],
        route: "envelope = { big = \"${big}\", done = \"${done}\", eventType = \"${type}\", n = \"${n}\" }\n",
    },
];

/// Parts of the records that must be equal. Events without a key go to any partition.
#[track_caller]
fn essence(records: Vec<TopicRecord>, prefix: &str) -> Vec<TopicRecord> {
    let mut records: Vec<TopicRecord> = records
        .into_iter()
        .map(|mut record| {
            record.topic = record.topic.strip_prefix(prefix).unwrap().to_owned();
            record.headers.retain(|(name, _)| !name.starts_with("__debezium.context."));
            record.headers.sort();
            record.timestamp_ms = 0;
            record.partition = if record.key.is_some() { record.partition } else { -1 };
            record
        })
        .collect();
    records.sort_by(|one, other| one.header("id").cmp(&other.header("id")));
    records
}

fn assert_equal_records(case: &Case) {
    let Case { name, table, rows, properties, route } = case;
    let mut scene = CliFixture::bare(name);
    scene.sql(&format!("CREATE TABLE public.outbox ({table})"));
    let (topic, ours) = ("outbox.event.T", format!("{name}.outbox.event.T"));
    let theirs = format!("by-debezium.{ours}");
    for topic in [&ours, &theirs] {
        scene.make_topic(topic, 3);
    }
    // GIVEN both on slots at the same position
    let replacement = format!(
        "debezium.transforms.outbox.route.topic.replacement={}$${{routedByValue}}",
        theirs.strip_suffix('T').unwrap()
    );
    let more: Vec<&str> = properties.iter().copied().chain([replacement.as_str()]).collect();
    let mut debezium = Server::start(&scene, &format!("{name}_theirs"), &more);
    scene.sql(&format!("SELECT pg_copy_logical_replication_slot('{name}_theirs', '{name}')"));
    scene.env = vec![("WALRELAY_SOURCE__PUBLICATION".to_owned(), "dbz_publication".to_owned())];
    scene.route = format!(
        "preset = \"debezium\"\ntopic = \"{}${{aggregatetype}}\"\n{route}",
        ours.strip_suffix('T').unwrap()
    );
    // WHEN rows are written
    scene.sql(&format!("INSERT INTO outbox VALUES {rows}"));
    let count: usize = scene.sql("SELECT count(*) FROM outbox").parse().unwrap();
    debezium.wait_until("all rows by Debezium", || read(&[&theirs]).len() == count);
    debezium.stop();
    // THEN the records are equal
    let of_relay = essence(scene.carry(&[&ours]), ours.strip_suffix(topic).unwrap());
    let of_debezium = essence(read(&[&theirs]), theirs.strip_suffix(topic).unwrap());
    assert_eq!(of_relay, of_debezium, "{name}");
}

#[test]
#[ignore = "soak"]
fn the_relay_publishes_what_debezium_publishes_for_the_same_rows() {
    CASES.iter().for_each(assert_equal_records);
}

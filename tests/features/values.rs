//! Payloads and keys: what Postgres stores is what a consumer gets, byte for byte.

use walrelay_harness::consumer::create_topic;

use crate::support::faults::{CliFixture, TopicRecord, brokers};

/// A table with a payload of that type, routed to the scene's topic.
fn scene_with(name: &str, payload_type: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::bare(name);
    scene.sql(&format!(
        "CREATE TABLE public.outbox (id int PRIMARY KEY, aggregateid text, type text, payload {payload_type})"
    ));
    scene.prepare("TABLE public.outbox", &scene.topic());
    scene.route = format!("topic = \"{}\"", scene.topic());
    scene
}

fn values(records: &[TopicRecord]) -> Vec<Option<&[u8]>> {
    records.iter().map(|record| record.value.as_deref()).collect()
}

#[test]
fn every_byte_of_a_bytea_arrives() {
    let scene = scene_with("values_bytea", "bytea");
    // GIVEN all 256 bytes, nothing, NULL, and what looks like an escape
    scene.sql(
        r"INSERT INTO outbox SELECT 1, 'k', 'T', decode(string_agg(lpad(to_hex(i), 2, '0'), '' ORDER BY i), 'hex')
          FROM generate_series(0, 255) i;
          INSERT INTO outbox VALUES (2, 'k', 'T', ''), (3, 'k', 'T', NULL), (4, 'k', 'T', '\x5c783030');",
    );
    let records = scene.carry(&[&scene.topic()]);
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(values(&records), [Some(&all[..]), Some(&[]), None, Some(b"\\x00")]);
}

#[test]
fn every_byte_of_a_bytea_arrives_in_text_mode_also_of_a_domain() {
    let mut scene = scene_with("values_bytea_text", "bytea");
    scene.sql(
        "CREATE DOMAIN raw AS bytea; CREATE DOMAIN body AS raw;
         ALTER TABLE outbox ALTER payload TYPE body",
    );
    scene.source = "binary = false".into();
    scene.sql(
        r"INSERT INTO outbox SELECT 1, 'k', 'T', decode(string_agg(lpad(to_hex(i), 2, '0'), '' ORDER BY i), 'hex')
          FROM generate_series(0, 255) i;
          INSERT INTO outbox VALUES (2, 'k', 'T', ''), (3, 'k', 'T', NULL)",
    );
    let records = scene.carry(&[&scene.topic()]);
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(values(&records), [Some(&all[..]), Some(&[]), None]);
}

#[test]
fn json_keeps_its_blanks_and_jsonb_is_as_postgres_prints_it() {
    let written = r#"{ "b":1,  "a" : "\u00e9 é 客 🦀", "b": 2.50 }"#;
    let scene = scene_with("values_json", "json");
    scene.sql(&format!("INSERT INTO outbox VALUES (1, 'k', 'T', '{written}')"));
    assert_eq!(scene.carry(&[&scene.topic()])[0].text(), written);

    let scene = scene_with("values_jsonb", "jsonb");
    scene.sql(&format!(
        "INSERT INTO outbox VALUES (1, 'k', 'T', '{written}'), (2, 'k', 'T', 'null')"
    ));
    let printed = scene.sql("SELECT payload FROM outbox WHERE id = 1");
    let records = scene.carry(&[&scene.topic()]);
    assert_eq!(records[0].text(), printed);
    assert_eq!(records[0].text(), r#"{"a": "é é 客 🦀", "b": 2.50}"#);
    // THEN a JSON null is a value, not a missing one
    assert_eq!(records[1].text(), "null");
}

#[test]
fn text_and_keys_are_any_unicode_and_a_null_key_is_none() {
    let scene = scene_with("values_text", "text");
    scene.sql(
        "INSERT INTO outbox VALUES (1, 'ключ 🔑', 'Тип', E'line\\none\\ttab \"quoted\" \\\\ ü 🦀'),
                                   (2, '', 'T', ''), (3, NULL, NULL, NULL)",
    );
    let records = scene.carry(&[&scene.topic()]);
    assert_eq!(records.len(), 3);
    assert_eq!((records[0].key(), records[0].header("event_type")), (Some("ключ 🔑"), Some("Тип")));
    assert_eq!(records[0].text(), "line\none\ttab \"quoted\" \\ ü 🦀");
    assert_eq!((records[1].key(), records[1].text()), (Some(""), ""));
    // THEN nothing is made up for NULL
    assert_eq!((records[2].key(), records[2].value.as_deref()), (None, None));
    assert_eq!(records[2].header_names(), ["id", "commit_ts", "lsn"]);
    assert_eq!(records[2].header("id"), Some("3"));
}

#[test]
fn a_megabyte_arrives_where_the_limits_allow_it() {
    let mut scene = CliFixture::bare("values_big");
    scene.sql("CREATE TABLE public.outbox (id int, aggregateid text, payload bytea)");
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    create_topic(&brokers(), "values.big", 1, &[("max.message.bytes", "4000000")]).unwrap();
    scene.route = "topic = \"values.big\"".into();
    scene.sink.push_str("properties = { \"message.max.bytes\" = \"4000000\" }\n");
    // GIVEN three megabytes that no compression makes small, stored out of line
    scene.sql(
        "INSERT INTO outbox SELECT 1, 'k', string_agg(sha256(i::text::bytea), '' ORDER BY i)
         FROM generate_series(1, 98304) i",
    );
    let sum = scene.sql("SELECT encode(sha256(payload), 'hex') FROM outbox");
    let records = scene.carry(&["values.big"]);
    let value = records[0].value.as_deref().unwrap();
    assert_eq!((records.len(), value.len()), (1, 3 << 20));
    let stored = scene.sql("SELECT encode(payload, 'hex') FROM outbox");
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(hex == stored, "the payload of {sum} was altered");
}

#[test]
fn a_value_without_a_binary_form_in_another_table_is_read_in_text_mode() {
    let scene = scene_with("values_without_binary", "text");
    // GIVEN an array, which has a binary form, of elements that have none
    scene.sql("CREATE TABLE granted (id int PRIMARY KEY, rights aclitem[])");
    scene.sql("ALTER PUBLICATION walrelay ADD TABLE granted");
    scene.sql("INSERT INTO granted VALUES (1, ARRAY['postgres=r/postgres'::aclitem])");
    scene.sql("INSERT INTO outbox VALUES (1, 'k', 'T', 'behind it')");
    let records = scene.carry(&[&scene.topic()]);
    assert_eq!(values(&records), [Some(&b"behind it"[..])]);
}

#[test]
fn columns_of_types_of_ones_own_are_read_in_text_mode_by_itself() {
    let mut scene = CliFixture::bare("values_enum");
    scene.sql(
        "CREATE TYPE region AS ENUM ('north', 'south');
         CREATE DOMAIN order_key AS text CHECK (value <> '');
         CREATE TABLE public.outbox (id bigint, kind region, aggregateid order_key, amount numeric,
                                     at timestamptz, payload bytea)",
    );
    scene.prepare("TABLE public.outbox", "values.enum");
    scene.route = "topic = \"values.enum\"\nkey = \"${kind}-${aggregateid}\"\n\
                   headers = { amount = \"${amount}\", at = \"${at}\" }\n"
        .into();
    scene.sql(
        r"INSERT INTO outbox VALUES (-9223372036854775808, 'south', 'k1', 1.50, '2031-05-01 10:00:00+00', '\x00ff'),
                                    (2, 'north', 'k2', NULL, NULL, '\x41')",
    );
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    assert!(relay.said().contains("text form"), "{}", relay.said());
    relay.stop();
    let records = crate::support::faults::read(&["values.enum"]);
    assert_eq!(records.len(), 2, "each once, although the stream was opened twice");
    assert_eq!(records[0].key(), Some("south-k1"));
    assert_eq!(records[0].header("id"), Some("-9223372036854775808"));
    assert_eq!(records[0].header("amount"), Some("1.50"));
    assert!(records[0].header("at").unwrap().starts_with("2031-05-01 "));
    assert_eq!(records[0].value.as_deref(), Some(&[0, 0xff][..]));
    assert_eq!((records[1].key(), records[1].header("amount")), (Some("north-k2"), None));
}

#[test]
fn bytes_that_are_no_utf8_arrive_from_a_database_without_an_encoding() {
    let mut scene = CliFixture::without_encoding("values_ascii");
    scene.make_topic(&scene.topic(), 1);
    scene.sql("CREATE TABLE public.outbox (id int PRIMARY KEY, aggregateid text, payload text)");
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    scene.route = format!("topic = \"{}\"", scene.topic());
    scene.sql(
        r"INSERT INTO outbox VALUES (1, convert_from('\x6be9', 'SQL_ASCII'), convert_from('\x636166e9', 'SQL_ASCII')),
                                    (2, 'k', convert_from('\x636166c3a9', 'SQL_ASCII'))",
    );
    let records = scene.carry(&[&scene.topic()]);
    assert_eq!(values(&records), [Some(&b"caf\xe9"[..]), Some("café".as_bytes())]);
    assert_eq!(records[0].key.as_deref(), Some(&b"k\xe9"[..]));
    // AND commands that look at the rows leave out what is no text
    scene.route = "topic = \"values.${aggregateid}\"".into();
    scene.walrelay(&["check"]).assert_says(&["values_ascii is SQL_ASCII"]);
    let find = scene.walrelay(&["find", "1", "2", "--json"]);
    assert!(find.all().contains("\"id\":\"1\""), "{find}");
}

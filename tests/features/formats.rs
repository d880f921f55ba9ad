//! Payload formats on the wire.

use serde_json::Value;

use crate::support::faults::{CliFixture, TopicRecord, read};

/// Two events of one kind each: JSON, and bytes that are none.
fn carried(
    name: &str,
    payload_type: &str,
    format: &str,
) -> (CliFixture<'static>, Vec<TopicRecord>) {
    let mut scene = CliFixture::bare(name);
    scene.sql(&format!(
        "CREATE TABLE public.outbox (id text, aggregateid text, type text, payload {payload_type}, traceparent text)"
    ));
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    scene.make_topic(&scene.topic(), 1);
    scene.route = format!("topic = \"{}\"\nformat = \"{format}\"\n", scene.topic());
    scene.sql(
        r#"INSERT INTO outbox VALUES
           ('e1', 'k1', 'OrderPlaced', '{"a": 1.50, "s": "ü"}', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'),
           ('e2', NULL, NULL, NULL, NULL)"#,
    );
    let records = scene.carry(&[&scene.topic()]);
    assert_eq!(records.len(), 2);
    (scene, records)
}

#[test]
fn a_binary_cloudevent_has_its_attributes_in_headers() {
    let (scene, records) = carried("format_binary", "jsonb", "cloudevents");
    let event = &records[0];
    let header = |name| event.header(name);
    assert_eq!(header("ce_specversion"), Some("1.0"));
    assert_eq!((header("ce_id"), header("ce_type")), (Some("e1"), Some("OrderPlaced")));
    assert_eq!(header("ce_source"), Some("/walrelay/public.outbox"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert!(header("ce_traceparent").unwrap().starts_with("00-4bf9"));
    assert_eq!(
        scene.sql(&format!(
            "SELECT timestamptz '{}' = timestamptz '{}'",
            header("ce_time").unwrap(),
            header("commit_ts").unwrap()
        )),
        "t"
    );
    // THEN the payload is untouched, and the key is the ordering key
    assert_eq!((event.key(), event.text()), (Some("k1"), r#"{"a": 1.50, "s": "ü"}"#));
    let bare = &records[1];
    assert_eq!((bare.key(), bare.value.as_deref(), bare.header("ce_id")), (None, None, Some("e2")));
}

#[test]
fn a_structured_cloudevent_is_one_document() {
    let (_scene, records) = carried("format_structured", "jsonb", "cloudevents-structured");
    let event = &records[0];
    assert_eq!(event.header("content-type"), Some("application/cloudevents+json; charset=UTF-8"));
    let value: Value = serde_json::from_str(event.text()).unwrap();
    assert_eq!((&value["specversion"], &value["id"]), (&"1.0".into(), &"e1".into()));
    assert_eq!(
        (&value["type"], &value["source"]),
        (&"OrderPlaced".into(), &"/walrelay/public.outbox".into())
    );
    assert_eq!(value["datacontenttype"], "application/json");
    // THEN numbers are as they were written
    assert!(event.text().contains(r#""data":{"a": 1.50, "s": "ü"}"#), "{}", event.text());
    assert_eq!(event.key(), Some("k1"));
    let bare: Value = serde_json::from_str(records[1].text()).unwrap();
    assert_eq!((&bare["id"], bare.get("data")), (&"e2".into(), None));
}

#[test]
fn bytes_that_are_no_text_are_base64_in_a_structured_cloudevent() {
    let mut scene = CliFixture::bare("format_base64");
    scene.sql("CREATE TABLE public.outbox (id int, aggregateid text, type text, payload bytea)");
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    scene.make_topic(&scene.topic(), 1);
    scene.route = format!("topic = \"{}\"\nformat = \"cloudevents-structured\"\n", scene.topic());
    scene.sql(r"INSERT INTO outbox VALUES (1, 'k', 'T', '\x00ff6279746573')");
    scene.carry(&[]);
    let value: Value = serde_json::from_str(read(&[&scene.topic()])[0].text()).unwrap();
    assert_eq!((&value["data_base64"], value.get("data")), (&"AP9ieXRlcw==".into(), None));
}

#[test]
fn the_debezium_format_is_the_payload_itself_with_the_id_as_the_only_header() {
    let (_scene, records) = carried("format_debezium", "json", "debezium");
    assert_eq!(records[0].text(), r#"{"a": 1.50, "s": "ü"}"#);
    assert_eq!(records[0].header_names(), ["id"]);
    assert_eq!(records[1].value, None);
}

#[test]
fn columns_in_the_envelope_are_beside_the_payload() {
    let mut scene = CliFixture::bare("format_envelope");
    scene.sql(
        "CREATE TABLE public.outbox (id text, aggregateid text, type text, payload jsonb, n int, meta jsonb)",
    );
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    scene.make_topic(&scene.topic(), 1);
    scene.route = format!(
        "topic = \"{}\"\nenvelope = {{ eventType = \"${{type}}\", n = \"${{n}}\", tenant = \"${{meta.tenant}}\" }}\n",
        scene.topic()
    );
    scene.sql(
        r#"INSERT INTO outbox VALUES ('e1', 'k1', 'OrderPlaced', '{"a": 1.50}', 7, '{"tenant": "acme"}'),
               ('e2', 'k1', NULL, NULL, NULL, NULL)"#,
    );
    let records = scene.carry(&[&scene.topic()]);
    let texts: Vec<_> = records.iter().map(TopicRecord::text).collect();
    assert_eq!(
        texts,
        [
            r#"{"payload":{"a": 1.50},"eventType":"OrderPlaced","n":7,"tenant":"acme"}"#,
            r#"{"payload":null,"eventType":null,"n":null,"tenant":null}"#,
        ]
    );
}

//! Payload formats on the wire.

use crate::support::faults::{CliFixture, TopicRecord};

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
    scene.prepare("TABLE public.outbox", &scene.topic());
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
fn the_debezium_format_is_the_payload_itself_with_the_id_as_the_only_header() {
    let (_scene, records) = carried("format_debezium", "json", "debezium");
    assert_eq!(records[0].text(), r#"{"a": 1.50, "s": "ü"}"#);
    assert_eq!(records[0].header_names(), ["id"]);
    assert_eq!(records[1].value, None);
}

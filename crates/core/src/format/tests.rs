//! Every format of the list, against its golden file in tests/golden.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::base::event::{HeaderSlots, Outbound};
use crate::base::settings::Choice as _;

fn events() -> Vec<Outbound<'static>> {
    const FULL: &[(&str, &[u8])] = &[
        ("id", b"e-1"),
        ("event_type", b"OrderPlaced"),
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("ce_type", b"overridden"),
    ];
    let event = |id, value, headers| Outbound {
        topic: "outbox.event.order",
        key: Some(b"order-42"),
        value,
        id,
        headers,
        commit_unix_us: 1_795_266_631_227_183,
        partition: Some(3),
        ..Outbound::default()
    };
    vec![
        event("e-1", Some(&br#"{"order": 42, "price": 1.50}"#[..]), FULL),
        event("e-2", Some(&b"plain \"text\"\n"[..]), &[("tenant", b"acme")]),
        event("e-3", Some(&b"\x00\xFFbytes"[..]), &[]),
        event("e-4", None, &[]),
    ]
}

/// The event that is published; `format` is nothing where bytes pass through untouched.
fn shape<'a>(
    format: Option<&'a CloudEvents>,
    event: Outbound<'a>,
    scratch: &'a mut Vec<u8>,
    headers: &'a mut HeaderSlots<'a>,
) -> Outbound<'a> {
    format.map_or(event, |format| format.shape(event, scratch, headers).unwrap())
}

fn describe(format: Option<&CloudEvents>, text: &mut String) {
    let mut scratch = Vec::new();
    for event in events() {
        let mut headers = HeaderSlots::new();
        let shaped = shape(format, event, &mut scratch, &mut headers);
        assert_eq!((shaped.topic, shaped.key, shaped.id), (event.topic, event.key, event.id));
        assert_eq!((shaped.partition, shaped.commit_unix_us), (Some(3), event.commit_unix_us));
        writeln!(text, "event {}", shaped.id).unwrap();
        for (name, value) in shaped.headers {
            writeln!(text, "    {name}: {}", value.escape_ascii()).unwrap();
        }
        match shaped.value {
            None => writeln!(text, "    null").unwrap(),
            Some(value) => writeln!(text, "    = {}", value.escape_ascii()).unwrap(),
        }
    }
}

#[test]
fn every_format_has_a_golden_file_and_keeps_to_it() {
    for (name, format) in PayloadFormat::WORDS {
        let mut found = String::new();
        for binding in [CloudEventsBinding::Kafka, CloudEventsBinding::Amqp] {
            writeln!(found, "# {binding:?}").unwrap();
            let format = make(*format, "/walrelay/public.outbox".into(), binding);
            describe(format.as_ref(), &mut found);
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let golden = folder.join(format!("format.{name}.txt"));
        if std::env::var_os("WALRELAY_BLESS").is_some() {
            std::fs::write(&golden, &found).unwrap();
        }
        assert_eq!(found, std::fs::read_to_string(&golden).unwrap(), "{name}");
    }
}

#[test]
fn a_structured_event_is_json() {
    let source = "/a \"quoted\" source".to_owned();
    let format = make(PayloadFormat::CloudEventsStructured, source, CloudEventsBinding::Kafka);
    let mut scratch = Vec::new();
    let mut headers = HeaderSlots::new();
    let shaped = shape(format.as_ref(), events()[0], &mut scratch, &mut headers);
    let json: serde_json::Value = serde_json::from_slice(shaped.value.unwrap()).unwrap();
    assert_eq!(json["source"], "/a \"quoted\" source");
    assert_eq!(json["type"], "OrderPlaced");
    assert_eq!(json["data"]["order"], 42);
}

#[test]
fn cloudevents_need_an_id_and_room() {
    for format in [PayloadFormat::CloudEvents, PayloadFormat::CloudEventsStructured] {
        let format = make(format, "/s".into(), CloudEventsBinding::Kafka).unwrap();
        let class = |event: Outbound<'_>| {
            let (mut scratch, mut headers) = (Vec::new(), HeaderSlots::new());
            format.shape(event, &mut scratch, &mut headers).unwrap_err().class()
        };
        assert_eq!(class(Outbound { id: "", ..events()[3] }), "format");
        let names: Vec<_> = (0..32).map(|n| format!("h{n}")).collect();
        let full: Vec<_> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert_eq!(class(Outbound { headers: &full, ..events()[3] }), "too-many-headers");
    }
}

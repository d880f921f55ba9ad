use super::*;

fn event<'a>() -> Outbound<'a> {
    Outbound {
        exchange: "outbox.events",
        topic: "outbox.event.order",
        key: Some(b"k\xFF1"),
        value: Some(b"{}"),
        id: "e-1",
        event_type: Some("Paid"),
        content_type: Some("application/json"),
        headers: &[("id", b"e-1"), ("empty", b""), ("bytes", b"\x00\xFF")],
        commit_unix_us: 1_795_266_631_227_183,
        partition: None,
    }
}

fn copy(event: &Outbound<'_>) -> Result<Message, Failure> {
    Message::copy(event, None)
}

fn text(name: &Option<ShortString>) -> Option<&str> {
    name.as_ref().map(ShortString::as_str)
}

#[test]
fn everything_has_its_place() {
    let message = copy(&event()).unwrap();
    assert_eq!(message.exchange(), "outbox.events");
    assert_eq!(message.routing_key(), "outbox.event.order");
    assert_eq!((message.id(), message.body()), ("e-1", &b"{}"[..]));
    let properties = message.properties();
    assert_eq!(text(properties.message_id()), Some("e-1"));
    assert_eq!(text(properties.kind()), Some("Paid"));
    assert_eq!(text(properties.content_type()), Some("application/json"));
    assert_eq!(text(properties.app_id()), Some("walrelay"));
    assert_eq!(properties.delivery_mode(), &Some(2));
    assert_eq!(properties.timestamp(), &Some(1_795_266_631));
    let headers = properties.headers().as_ref().unwrap();
    let found: Vec<(&str, &AMQPValue)> =
        headers.inner().iter().map(|(name, value)| (name.as_str(), value)).collect();
    let long = |bytes: &[u8]| AMQPValue::LongString(LongString::from(bytes));
    let expected = [
        ("bytes", &long(b"\x00\xFF")),
        ("empty", &long(b"")),
        ("id", &long(b"e-1")),
        ("key", &long(b"k\xFF1")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_message_needs_nothing_but_an_id() {
    let bare = Outbound {
        exchange: "",
        key: None,
        value: None,
        event_type: None,
        content_type: None,
        headers: &[],
        ..event()
    };
    let message = copy(&bare).unwrap();
    assert_eq!((message.exchange(), message.body(), message.lane), ("", &b""[..], None));
    let properties = message.properties();
    assert_eq!((properties.kind(), properties.content_type()), (&None, &None));
}

#[test]
fn a_content_type_header_is_the_content_type() {
    let headers: &[(&str, &[u8])] = &[("content-type", b"application/cloudevents+json")];
    let properties = copy(&Outbound { headers, ..event() }).unwrap().properties();
    assert_eq!(text(properties.content_type()), Some("application/cloudevents+json"));
    assert_eq!(properties.headers().as_ref().unwrap().inner().len(), 1, "the key");
}

#[test]
fn names_have_255_bytes_at_most() {
    let long = "x".repeat(256);
    let fits = &long[..255];
    let header = |name| [(name, &b"v"[..])];
    assert!(copy(&Outbound { topic: fits, id: fits, exchange: fits, ..event() }).is_ok());
    assert!(copy(&Outbound { headers: &header(fits), ..event() }).is_ok());
    let cases = [
        ("routing key", Outbound { topic: &long, ..event() }),
        ("exchange", Outbound { exchange: &long, ..event() }),
        ("event id", Outbound { id: &long, ..event() }),
        ("event type", Outbound { event_type: Some(&long), ..event() }),
        ("content type", Outbound { content_type: Some(&long), ..event() }),
        ("header name", Outbound { headers: &header(&long), ..event() }),
    ];
    for (what, event) in cases {
        let failure = copy(&event).unwrap_err();
        assert_eq!(failure.class, "rabbitmq.name-too-long");
        assert_eq!(failure.disposition, Disposition::Terminal);
        assert!(failure.reason.contains(what), "{}", failure.reason);
        assert!(failure.reason.len() < 200 && failure.subject.len() < 100);
    }
}

#[test]
fn a_payload_is_not_for_logs() {
    let shown = format!("{:?}", copy(&Outbound { value: Some(b"canary"), ..event() }).unwrap());
    assert!(shown.contains("e-1") && !shown.contains("canary"), "{shown}");
}

use super::*;
use crate::dead_letter::writer::{
    DeadLetterCause, EVENT_ID, EVENT_ID_SIZE, KEY_SHA256, KEY_SIZE, sha256_hex,
};
use crate::sink::rabbitmq::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use crate::testing::{dead_letter_cause, dead_letter_writer};

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
        ..Outbound::default()
    }
}

/// The limits of the largest frame that the relay asks for.
fn limits() -> Limits {
    Limits::default()
}

fn copy(event: &Outbound<'_>) -> Result<AmqpMessage, Failure> {
    AmqpMessage::event(event, &limits(), None)
}

#[test]
fn everything_has_its_place() {
    let message = copy(&event()).unwrap();
    assert_eq!(message.exchange(), "outbox.events");
    assert_eq!(message.routing_key(), "outbox.event.order");
    assert_eq!((message.id(), message.body()), ("e-1", &b"{}"[..]));
    assert_eq!(message.event_type(), Some("Paid"));
    assert_eq!(message.content_type(), Some("application/json"));
    let headers: Vec<(&str, &[u8])> = message.headers_and_key().collect();
    let expected: [(&str, &[u8]); 4] =
        [("id", b"e-1"), ("empty", b""), ("bytes", b"\x00\xFF"), ("key", b"k\xFF1")];
    assert_eq!(headers, expected);
}

#[test]
fn a_message_needs_nothing_but_an_id() {
    let message = copy(&Outbound { id: "e-1", ..Outbound::default() }).unwrap();
    assert_eq!((message.exchange(), message.body(), message.lane), ("", &b""[..], None));
    assert_eq!((message.event_type(), message.content_type()), (None, None));
}

#[test]
fn a_content_type_header_is_the_content_type() {
    let headers: &[(&str, &[u8])] = &[("content-type", b"application/cloudevents+json")];
    let message = copy(&Outbound { headers, ..event() }).unwrap();
    assert_eq!(message.content_type(), Some("application/cloudevents+json"));
    assert_eq!(message.headers_and_key().count(), 1, "the key");
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
        assert!(failure.reason.len() < 200 && failure.subject.len() < 250);
    }
}

#[test]
fn an_event_has_room_for_headers_that_fit_into_a_frame() {
    let value = vec![b'h'; limits().properties_bytes()];
    let fitting = (0..200).filter(|less| {
        let headers: &[(&str, &[u8])] = &[("large", &value[*less..])];
        let event = Outbound { headers, ..event() };
        assert_eq!(has_room_for(&event, &limits()), copy(&event).is_ok());
        has_room_for(&event, &limits())
    });
    assert!((1..200).contains(&fitting.count()));
    // AND id, type and content type take room as well
    let plain = Outbound { id: "i", event_type: None, content_type: None, ..event() };
    let named =
        Outbound { id: "i-23", event_type: Some("type"), content_type: Some("text/csv"), ..plain };
    assert_eq!(properties_bytes(&named), properties_bytes(&plain) + 3 + 4 + 8);
}

#[test]
fn a_payload_is_not_for_logs() {
    let shown = format!("{:?}", copy(&Outbound { value: Some(b"canary"), ..event() }).unwrap());
    assert!(shown.contains("e-1") && !shown.contains("canary"), "{shown}");
}

/// The most bytes of our own texts in a dead letter that is cut.
const TEXT_BYTES_MAX: usize = 2000;

type Headers = Vec<(String, Vec<u8>)>;

fn failed<'a>(headers: &'a [(&'a str, &'a [u8])]) -> Outbound<'a> {
    Outbound { key: Some(b"42"), headers, ..event() }
}

/// The letter of the event, as it is sent.
fn letter(event: &Outbound<'_>) -> AmqpMessage {
    letter_within(&limits(), event)
}

fn letter_within(limits: &Limits, event: &Outbound<'_>) -> AmqpMessage {
    let cause = DeadLetterCause { reason: "r".repeat(100_000), ..dead_letter_cause() };
    let copy = |letter: &Outbound<'_>| AmqpMessage::dead_letter(letter, limits, Some(7));
    dead_letter_writer(900 << 10).compose(event, &cause, copy).unwrap()
}

fn headers(message: &AmqpMessage) -> Headers {
    message.with_outbound(|event| {
        event.headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect()
    })
}

fn header(message: &AmqpMessage, name: &str) -> Option<String> {
    let found = headers(message).into_iter().find(|(found, _)| found == name)?.1;
    Some(String::from_utf8(found).unwrap())
}

#[test]
fn what_fits_is_not_touched() {
    let message = letter(&failed(&[("id", b"e-1"), ("bytes", b"\x00\xFF"), ("empty", b"")]));
    assert_eq!((message.exchange(), message.routing_key()), ("outbox.dlx", "outbox.dlq"));
    assert_eq!(
        (message.id(), message.body(), message.key()),
        ("e-1", &b"{}"[..], Some(&b"42"[..]))
    );
    assert_eq!(message.lane(), Some(7));
    let found = headers(&message);
    let theirs = [("id", &b"e-1"[..]), ("bytes", b"\x00\xFF"), ("empty", b"")];
    assert_eq!(found[..3], theirs.map(|(name, value)| (name.to_owned(), value.to_vec())));
    assert_eq!(header(&message, HEADERS_DROPPED), None);
    assert_eq!(header(&message, "dlq-error-msg").unwrap().len(), TEXT_BYTES_MAX);
}

#[test]
fn an_event_is_not_a_letter_and_is_refused_as_it_is() {
    let long = "i".repeat(256);
    let forged: &[(&str, &[u8])] = &[(EVENT_ID, b"e-1")];
    let failure = copy(&Outbound { id: &long, ..failed(forged) }).unwrap_err();
    assert_eq!(
        (failure.class.as_str(), failure.key.as_deref()),
        ("rabbitmq.name-too-long", Some(&b"42"[..]))
    );
}

#[test]
fn names_that_are_too_long_stand_in_headers() {
    let (id, kind) = ("ä".repeat(800), "t".repeat(300));
    let long_name = "n".repeat(256);
    let long_type = vec![b'c'; 256];
    let theirs: &[(&str, &[u8])] =
        &[(&long_name, b"v"), ("content-type", &long_type), ("kept", b"v")];
    let message =
        letter(&Outbound { id: &id, event_type: Some(&kind), topic: &id, ..failed(theirs) });
    assert!(
        message.id().starts_with("sha256:") && message.id().len() == 7 + 64,
        "{}",
        message.id()
    );
    assert_eq!(header(&message, EVENT_ID), Some(id.clone()));
    assert_eq!(header(&message, "dlq-original-topic"), Some(id));
    assert_eq!(header(&message, TYPE), Some(kind));
    assert_eq!(header(&message, "kept").as_deref(), Some("v"));
    assert_eq!(header(&message, HEADERS_DROPPED), Some(format!("{long_name}, content-type")));
    // Another id is another hash.
    let other = "i".repeat(300);
    assert_ne!(letter(&Outbound { id: &other, ..failed(&[]) }).id(), message.id());
}

#[test]
fn headers_go_from_the_largest_on_until_the_rest_fits_into_a_frame() {
    let (large, larger, small) = (vec![b'x'; 12_000], vec![b'y'; 30_000], vec![b'z'; 100]);
    let theirs: &[(&str, &[u8])] = &[("a", &large), ("b", &larger), ("c", &small), ("d", &large)];
    let message = letter(&failed(theirs));
    assert_eq!(header(&message, HEADERS_DROPPED).as_deref(), Some("b"));
    assert_eq!(header(&message, "a").map(|value| value.len()), Some(12_000));
    assert_eq!(message.key(), Some(&b"42"[..]));
    // Of a key that leaves no room the beginning stays, and its lane.
    let key = vec![b'k'; 100_000];
    let message = letter(&Outbound { key: Some(&key), ..failed(theirs) });
    assert_eq!(header(&message, HEADERS_DROPPED).as_deref(), Some("b, d"));
    assert_eq!((message.key(), message.lane()), (Some(&key[..1024]), Some(7)));
    assert_eq!(header(&message, KEY_SIZE).as_deref(), Some("100000"));
    assert_eq!(header(&message, KEY_SHA256), Some(sha256_hex(&key)));
}

#[test]
fn any_event_has_a_letter() {
    let text = "ü".repeat(50_000);
    let names: Vec<String> = (0..40).map(|n| format!("the-{n}{}", "n".repeat(n * 5))).collect();
    let theirs: Vec<(&str, &[u8])> =
        names.iter().map(|name| (name.as_str(), text.as_bytes())).collect();
    let worst = Outbound {
        exchange: &text,
        topic: &text,
        key: Some(text.as_bytes()),
        id: &text,
        event_type: Some(&text),
        content_type: Some(&text),
        partition: Some(7),
        ..failed(&theirs)
    };
    // In the smallest frames, too.
    for frame_bytes in [FRAME_BYTES_MAX as usize, FRAME_BYTES_MIN] {
        let message = letter_within(&Limits { frame_bytes, ..limits() }, &worst);
        assert_eq!(header(&message, EVENT_ID), Some(hash_name(text.as_bytes())));
        assert_eq!(header(&message, EVENT_ID_SIZE).as_deref(), Some("100000"));
        assert_eq!(header(&message, "dlq-type-size").as_deref(), Some("100000"));
        assert!(header(&message, HEADERS_DROPPED).unwrap().starts_with("content-type, the-39"));
        assert!(header(&message, "dlq-error-msg").unwrap().len() > 400);
    }
}

#[test]
fn of_a_letter_that_the_broker_finds_too_large_less_is_sent() {
    let value = vec![b'v'; 5_000];
    let whole = letter(&Outbound { value: Some(&value), ..failed(&[("kept", b"v")]) });
    let less = whole.cut_to(&Limits { body_bytes: 3_000, ..limits() }).unwrap();
    assert_eq!((less.body().len(), less.key(), less.lane()), (3_000, Some(&b"42"[..]), Some(7)));
    // Where no limit is known, half.
    let less = less.halved(&limits()).unwrap();
    assert_eq!((less.body().len(), header(&less, "kept").as_deref()), (1_500, Some("v")));
    assert_eq!(header(&less, "dlq-value-size").as_deref(), Some("5000"));
    assert_eq!(header(&less, "dlq-value-sha256"), Some(sha256_hex(&value)));
    let none = less.cut_to(&Limits { body_bytes: 0, ..limits() }).unwrap();
    assert!(none.body().is_empty() && none.halved(&limits()).is_none());
    // An event is never cut.
    assert!(copy(&failed(&[])).unwrap().halved(&limits()).is_none());
}

#[test]
fn a_message_that_was_copied_for_larger_frames_is_cut_or_refused() {
    let small = Limits { frame_bytes: FRAME_BYTES_MIN, ..limits() };
    let large = vec![b'x'; 8_100];
    let theirs: &[(&str, &[u8])] = &[("large", &large), ("kept", b"v")];
    let event = copy(&failed(theirs)).unwrap();
    assert!(event.excess(&limits()).is_none() && event.cut_to(&small).is_none());
    assert_eq!(event.excess(&small).unwrap().class, "rabbitmq.headers-too-large");
    let message = letter(&failed(theirs));
    assert!(message.excess(&small).is_some());
    let cut = message.cut_to(&small).unwrap();
    assert!(cut.excess(&small).is_none());
    assert_eq!(header(&cut, HEADERS_DROPPED).as_deref(), Some("large"));
    assert_eq!(header(&cut, "kept").as_deref(), Some("v"));
}

#[test]
fn what_the_broker_takes_for_its_own_is_left_out() {
    let names = ["CC", "BCC", "x-stream-offset", "x-cc", "x-death", "x-exchange", "x-routing-key"];
    let headers: Vec<(&str, &[u8])> =
        names.iter().copied().chain(["cc"]).map(|name| (name, b"x".as_slice())).collect();
    let message = letter(&failed(&headers));
    assert_eq!(header(&message, HEADERS_DROPPED), Some(names.join(", ")));
    assert_eq!(header(&message, "cc").as_deref(), Some("x"));
}

#[test]
fn the_command_for_an_event_without_a_queue_names_the_virtual_host() {
    let address = AmqpAddress { vhost: "shop".to_owned(), ..AmqpAddress::default() };
    let returned = ReturnedMessage { id: "e-1".to_owned(), code: 312, text: "NO_ROUTE".to_owned() };
    let mend = |exchange| {
        let event = Outbound { exchange, topic: "orders", ..event() };
        copy(&event).unwrap().unroutable(&returned, &address).mend
    };
    let binding = "bind a queue: rabbitmqadmin --vhost 'shop' declare binding --source 'events' --destination QUEUE --destination-type queue --routing-key 'orders'";
    assert!(mend("events").starts_with(binding), "{}", mend("events"));
    let queue = "make the queue: rabbitmqadmin --vhost 'shop' declare queue --name 'orders'";
    assert!(mend("").starts_with(queue), "{}", mend(""));
    let missing = copy(&event()).unwrap().no_exchange(&address).mend;
    assert!(missing.starts_with("rabbitmqadmin --vhost 'shop' declare exchange"), "{missing}");
    assert!(missing.ends_with(LOST_BINDINGS), "{missing}");
    let missing = letter(&failed(&[])).no_exchange(&address).mend;
    assert!(missing.ends_with("walrelay init"), "{missing}");
}

#[test]
fn the_commands_hold_what_a_row_names_as_words_that_the_shell_leaves_alone() {
    let address = AmqpAddress { vhost: "v".to_owned(), ..AmqpAddress::default() };
    let returned = ReturnedMessage { id: "e-1".to_owned(), code: 312, text: "NO_ROUTE".to_owned() };
    // GIVEN a row whose exchange and routing key are made for a shell
    let (exchange, topic) = ("it's$HOME", "k$(touch /tmp/x)");
    let message = copy(&Outbound { exchange, topic, ..event() }).unwrap();
    let unroutable = message.unroutable(&returned, &address).mend;
    let words = r"--source 'it'\''s$HOME' --destination QUEUE --destination-type queue --routing-key 'k$(touch /tmp/x)',";
    assert!(unroutable.contains(words), "{unroutable}");
    let direct = copy(&Outbound { exchange: "", topic, ..event() }).unwrap();
    let direct = direct.unroutable(&returned, &address).mend;
    assert!(direct.contains("--name 'k$(touch /tmp/x)' --type quorum"), "{direct}");
    for mend in [
        message.no_exchange(&address).mend,
        message.nacked(&address).mend,
        message.queue_failed("failed", &address).mend,
    ] {
        assert!(mend.contains(r"'it'\''s$HOME'") && mend.contains(" 'v' "), "{mend}");
    }
    // THEN nothing that is no part of the command follows it
    let nacked = message.nacked(&address).mend;
    let command = ": rabbitmqctl list_queues -p 'v' name messages arguments policy";
    assert!(nacked.ends_with(command), "{nacked}");
}

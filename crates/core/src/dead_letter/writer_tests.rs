use super::*;
use crate::testing::{dead_letter_cause, dead_letter_writer};

fn event<'a>(value: &'a [u8], headers: &'a [(&'a str, &'a [u8])]) -> Outbound<'a> {
    let (key, value) = (Some(&b"42"[..]), Some(value));
    Outbound { topic: "orders", key, value, id: "e1", headers, ..Outbound::default() }
}

fn cause() -> DeadLetterCause {
    DeadLetterCause { parks_key: false, ..dead_letter_cause() }
}

fn header(letter: &Outbound<'_>, name: &str) -> Option<String> {
    let found = letter.headers.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn what_goes_to_the_topic_or_through_its_exchange_reaches_the_letters() {
    let address = DeadLetterSettings::default().address;
    for (exchange, topic, reaches) in [
        ("", "outbox.dlq", true),
        ("", "orders", false),
        ("outbox.dlx", "orders", true),
        ("outbox", "outbox.dlq", false),
    ] {
        assert_eq!(address.is_reached_by(exchange, topic), reaches, "{exchange} {topic}");
    }
}

#[test]
fn the_topic_of_a_consumer_has_the_exchange_of_that_name() {
    for (topic, exchange) in
        [("billing.dlq", Some("billing.dlx")), ("letters", Some("")), ("two words", None)]
    {
        let address = DeadLetterAddress::of_consumer(topic).ok();
        assert_eq!(address.as_ref().map(|it| it.exchange.as_str()), exchange, "{topic}");
    }
}

#[test]
fn a_letter_is_the_event_untouched_with_its_fate_beside_it() {
    let writer = dead_letter_writer(b"payload".len());
    writer.system.learn("7000");
    writer.compose(&event(b"payload", &[("id", b"e1")]), &cause(), |letter| {
        assert_eq!((letter.topic, letter.exchange), ("outbox.dlq", "outbox.dlx"));
        assert_eq!((letter.key, letter.value), (Some(&b"42"[..]), Some(&b"payload"[..])));
        assert_eq!(letter.headers[0], ("id", &b"e1"[..]));
        assert_eq!(header(letter, ORIGINAL_TOPIC).as_deref(), Some("orders"));
        assert_eq!(header(letter, LSN).as_deref(), Some("16/B374D848"));
        assert_eq!(header(letter, ORDINAL).as_deref(), Some("3"));
        assert_eq!(header(letter, SYSTEM).as_deref(), Some("7000"));
        assert_eq!(header(letter, FAILED_AT).as_deref(), Some("1970-01-01T00:00:03.000000Z"));
        assert_eq!(header(letter, VALUE_SIZE), None);
        assert_eq!(header(letter, PARKS_KEY), None);
        assert_eq!(header(letter, INCOMPLETE), None);
    });
}

#[test]
fn an_event_cannot_forge_its_fate() {
    let forged: [(&str, &[u8]); 3] =
        [(RESOLUTION, b"discarded"), (PARKS_KEY, b"true"), ("trace", b"t")];
    let cause = DeadLetterCause { incomplete: true, ..cause() };
    dead_letter_writer(100).compose(&event(b"payload", &forged), &cause, |letter| {
        assert_eq!(header(letter, "trace").as_deref(), Some("t"));
        assert_eq!((header(letter, RESOLUTION), header(letter, PARKS_KEY)), (None, None));
        assert_eq!(header(letter, INCOMPLETE).as_deref(), Some("true"));
    });
}

#[test]
fn a_value_that_is_too_large_is_cut_and_can_be_recognised() {
    dead_letter_writer(3).compose(&event(b"abcdef", &[]), &cause(), |letter| {
        assert_eq!(letter.value, Some(&b"abc"[..]));
        assert_eq!(header(letter, VALUE_SIZE).as_deref(), Some("6"));
        let whole = "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721";
        assert_eq!(header(letter, VALUE_SHA256).as_deref(), Some(whole));
    });
}

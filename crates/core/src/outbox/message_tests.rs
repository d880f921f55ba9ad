//! Logical messages to events.

use proptest::prelude::*;

use super::*;
use crate::outbox::extract::tests::{columns, route};

const CONTENT: &str = r#"{"id": "m-1", "aggregatetype": "order", "aggregateid": 42, "type": "Pl\u0061ced",
    "payload": {"a" : [1.0]}, "headers": {"tenant": "acme"}, "ignored": {"payload": 1}}"#;

fn plan() -> MessagePlan {
    let settings = Messages { prefix: "outbox".into(), columns: columns(), route: route() };
    MessagePlan::compile(&settings).unwrap()
}

fn extract<T>(
    plan: &MessagePlan,
    content: &[u8],
    then: impl FnOnce(Result<Outbound<'_>, EventError>) -> T,
) -> T {
    let (transaction, mut scratch, mut headers) =
        (CommitStamp::default(), ExtractScratch::default(), HeaderSlots::new());
    then(plan.extract(Lsn::ZERO, content, &transaction, &mut scratch, &mut headers))
}

#[test]
fn only_transactional_messages_of_the_prefix_are_wanted() {
    let plan = plan();
    assert!(plan.wants(true, "outbox"));
    assert!(!plan.wants(false, "outbox"), "it may belong to a transaction that was rolled back");
    assert!(!plan.wants(true, "outbox2"));
}

#[test]
fn fields_play_the_columns() {
    extract(&plan(), CONTENT.as_bytes(), |event| {
        let event = event.unwrap();
        assert_eq!((event.topic, event.id), ("outbox.event.order", "m-1"));
        assert_eq!(event.key, Some(&b"42"[..]));
        assert_eq!(event.value, Some(&br#"{"a" : [1.0]}"#[..]));
        assert_eq!(event.headers[1], ("event_type", &b"Placed"[..]));
        assert_eq!(event.headers.last(), Some(&("tenant", &b"acme"[..])));
    });
}

#[test]
fn a_null_payload_is_null_and_a_text_payload_stays_json() {
    for (payload, value) in [("null", None), ("\"t\\n\"", Some(&b"\"t\\n\""[..]))] {
        let content = format!(r#"{{"id": 1, "aggregatetype": "a", "payload": {payload}}}"#);
        extract(&plan(), content.as_bytes(), |event| {
            let event = event.unwrap();
            assert_eq!((event.id, event.key, event.value), ("1", None, value));
        });
    }
}

#[test]
fn what_is_not_an_event_is_told_and_salvaged() {
    let plan = plan();
    for (content, class) in [
        ("", "message-not-object"),
        ("[]", "message-not-object"),
        ("{} x", "message-not-object"),
        ("{\"id\": \"\\ud800\"}", "message-not-object"),
        (r#"{"aggregatetype": "a", "payload": 1}"#, "null-column"),
        (r#"{"id": "1", "payload": 1}"#, "null-in-template"),
    ] {
        let content = content.as_bytes();
        extract(&plan, content, |refused| assert_eq!(refused.unwrap_err().class(), class));
        let (transaction, mut scratch, mut headers) =
            (CommitStamp::default(), ExtractScratch::default(), HeaderSlots::new());
        let saved = plan.salvage(content, &transaction, &mut scratch, &mut headers);
        let whole = class == "message-not-object";
        assert_eq!(saved.value, Some(if whole { content } else { b"1" }));
    }
}

proptest! {
    #[test]
    fn hostile_content_never_panics(content in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(extract(&plan(), &content, |made| made.is_err()));
    }

    #[test]
    fn text_fields_come_out_as_they_went_in(id in "\\PC{1,12}", key in any::<Option<String>>()) {
        let content = serde_json::json!({
            "id": id, "aggregatetype": "a", "aggregateid": key, "payload": {},
        });
        let content = content.to_string();
        let found = extract(&plan(), content.as_bytes(), |event| {
            event.map(|event| (event.id.to_owned(), event.key.map(<[u8]>::to_vec)))
        });
        prop_assert_eq!(found.unwrap(), (id, key.map(String::into_bytes)));
    }
}

#[test]
fn members_of_fields_route_and_stand_in_the_envelope() {
    let template = |text: &str| crate::base::template::Template::parse(text).unwrap();
    let mut route = route();
    route.topic = template("t.${meta.to}");
    route.key = Some(template("${meta.tenant.id}"));
    route.envelope = [("tenant".to_owned(), template("${meta.tenant.id}"))].into();
    let settings = Messages { prefix: "outbox".into(), columns: columns(), route };
    let plan = MessagePlan::compile(&settings).unwrap();
    let content =
        br#"{"id": 1, "payload": {"a": 1}, "meta": {"to": "x", "tenant": {"id": "acme"}}}"#;
    extract(&plan, content, |event| {
        let event = event.unwrap();
        assert_eq!((event.topic, event.key), ("t.x", Some(&b"acme"[..])));
        assert_eq!(event.value, Some(&br#"{"payload":{"a": 1},"tenant":"acme"}"#[..]));
    });
}

//! All rows against a naive model, and hostile rows.

use proptest::prelude::*;

use super::tests::{Owned, SHAPE, columns, extract_with, outbox, relation, route, transaction};
use super::*;
use crate::base::lsn::Lsn;
use crate::outbox::message::MessagePlan;
use crate::outbox::settings::Messages;
use crate::pgoutput::encoder::Form;
use crate::pgoutput::message::Message;

/// A model that applies the rules one by one.
fn model(forms: &[Form]) -> Result<Owned, &'static str> {
    let get = |at: usize| match &forms[at] {
        Form::Null | Form::Unchanged => None,
        Form::Text(bytes) | Form::Binary(bytes) => Some(bytes.clone()),
    };
    let string = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let topic = match get(1) {
        None => return Err("null-in-template"),
        Some(kind) => format!("outbox.event.{}", string(kind)),
    };
    let mut row_headers = Vec::new();
    if let Some(json) = get(5) {
        match serde_json::from_slice(&json) {
            Ok(serde_json::Value::Object(object)) => row_headers.extend(object),
            _ => return Err("headers-not-object"),
        }
    }
    let id = string(get(0).ok_or("null-column")?);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if topic.len() > 249 || !topic.chars().all(allowed) {
        return Err("bad-topic");
    }
    let mut headers = vec![("id".to_owned(), id.clone().into_bytes())];
    headers.extend(get(3).map(|kind| ("event_type".to_owned(), kind)));
    let trace = get(6).filter(|trace| !trace.is_empty());
    headers.extend(trace.map(|trace| ("traceparent".to_owned(), trace)));
    headers.push(("commit_ts".to_owned(), b"2026-11-21T13:10:31.227183Z".to_vec()));
    headers.push(("lsn".to_owned(), b"16/B374D848".to_vec()));
    for (name, value) in row_headers {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !headers.iter().any(|(known, _)| *known == name) {
            headers.push((name, value.into_bytes()));
        }
    }
    Ok(Owned { topic, key: get(2), value: get(4), id, headers, partition: None })
}

fn column(values: &'static str) -> impl Strategy<Value = Form> {
    prop_oneof![
        1 => Just(Form::Null),
        6 => values.prop_map(|value: String| Form::Text(value.into_bytes())),
    ]
}

proptest! {
    /// GIVEN rows of all kinds, one scratch for all WHEN they are extracted THEN each is what the
    /// model says, whatever came before it.
    #[test]
    fn extraction_is_what_the_model_says(
        rows in proptest::collection::vec((
            column("[a-z0-9-]{1,36}"),
            column("[a-zA-Z._-]{0,20}|[a-z Ü]{1,4}"),
            column("[ -~Ä]{0,12}"),
            column("[A-Za-z]{0,12}"),
            prop_oneof![
                Just(Form::Null),
                proptest::collection::vec(any::<u8>(), 0..64).prop_map(Form::Binary),
            ],
            column("\\{\\}|\\{\"[a-z]{1,3}\":(1|true|\"[a-zÜ]{0,4}\"|\\[1,2\\])\\}|\\[\\]|\\{\"lsn\":1\\}"),
            column("[0-9a-f]{0,9}"),
        ), 1..8),
    ) {
        let plan = Plan::compile(&outbox(route()), 0, &relation(&SHAPE), true).unwrap();
        let mut scratch = ExtractScratch::default();
        for (id, kind, key, event_type, payload, headers, trace) in rows {
            let forms = [id, kind, key, event_type, payload, headers, trace];
            match (extract_with(&plan, &forms, &mut scratch), model(&forms)) {
                (Err(RowError::Event(error)), Err(class)) => prop_assert_eq!(error.class(), class),
                (found, expected) => prop_assert_eq!(found.ok(), expected.ok()),
            }
        }
    }

    #[test]
    fn hostile_rows_never_panic(
        oids in proptest::collection::vec(
            proptest::sample::select(vec![16u32, 17, 19, 20, 21, 23, 25, 114, 2950, 3802]), 7),
        body in proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(b'n'), Just(b't'), Just(b'b'), any::<u8>()], 0..120),
    ) {
        let shape: Vec<_> = SHAPE.iter().zip(&oids).map(|((name, _), oid)| (*name, *oid)).collect();
        let plan = Plan::compile(&outbox(route()), 0, &relation(&shape), true).unwrap();
        let bytes = [&[b'I', 0, 0, 0, 7, b'N', 0, 7], body.as_slice()].concat();
        let Ok(Message::Insert { tuple, .. }) = Message::parse(&bytes) else { panic!() };
        let transaction = transaction();
        let mut scratch = ExtractScratch::default();
        plan.extract(tuple, &transaction, &mut scratch, &mut HeaderSlots::new()).map(drop).ok();
        plan.salvage(tuple, &transaction, &mut scratch, &mut HeaderSlots::new()).map(drop).ok();
    }

    /// GIVEN bad rows and messages whose payload and headers hold a secret WHEN they are refused
    /// THEN 16 bytes of it stand in no reason, and no reason is long.
    #[test]
    fn no_reason_holds_a_payload(
        secret in "[0-9a-f]{16,64}",
        before in "[\\[{\"]{0,3}|\\{\"a\": ?|[ -~]{0,20}",
        after in "[\\]}\"]{0,3}|\\\\ud800\"\\}|[ -~]{0,20}",
        repeated in 1usize..2000,
        binary in any::<bool>(),
        blank in 0usize..7,
    ) {
        let text = format!("{before}{}{after}", secret.repeat(repeated));
        let mut forms: Vec<Form> = ["i", "a b", "k", "t", &text, &text, "x"]
            .into_iter()
            .map(|text| Form::Text(text.as_bytes().to_vec()))
            .collect();
        forms[blank] = Form::Null;
        let mut reasons = Vec::new();
        // As a payload of every type, and with the payload's own column as JSON.
        for oid in [17u32, 25, 114, 3802, 23, 2950] {
            let shape: Vec<_> = SHAPE
                .iter()
                .map(|(name, own)| (*name, if ["payload", "headers"].contains(name) { oid } else { *own }))
                .collect();
            let Ok(plan) = Plan::compile(&outbox(route()), 0, &relation(&shape), binary) else { continue };
            let refused = extract_with(&plan, &forms, &mut ExtractScratch::default()).err();
            reasons.extend(refused.map(|error| error.to_string()));
        }
        let settings = Messages { columns: columns(), route: route(), prefix: "outbox".into() };
        let plan = MessagePlan::compile(&settings).unwrap();
        let quoted = serde_json::to_string(&text).unwrap();
        for content in [
            text.clone(),
            quoted.clone(),
            format!("{{\"id\": \"i\", \"headers\": {quoted}}}"),
            format!("{{\"id\": \"i\", \"aggregatetype\": \"t\", \"headers\": {text}, \"payload\": {quoted}}}"),
        ] {
            let (mut scratch, transaction) = (ExtractScratch::default(), transaction());
            let mut headers = HeaderSlots::new();
            let made = plan.extract(Lsn::ZERO, content.as_bytes(), &transaction, &mut scratch, &mut headers);
            reasons.extend(made.err().map(|error| error.to_string()));
        }
        for reason in reasons {
            prop_assert!(!reason.contains(&secret[..16]), "{}", reason);
            prop_assert!(reason.len() < 2100, "{} bytes", reason.len());
        }
    }
}

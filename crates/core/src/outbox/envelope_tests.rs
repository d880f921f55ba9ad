//! Columns in the envelope, by example.

use std::collections::BTreeMap;

use crate::base::template::Template;
use crate::outbox::error::RowError;
use crate::outbox::extract::Plan;
use crate::outbox::extract::tests::{ID, extract_with, outbox, relation};
use crate::outbox::settings::Route;
use crate::outbox::{EventError, ExtractScratch};
use crate::pgoutput::encoder::Form;

const JSONB: u32 = 3802;
const TEXT: u32 = 25;
const BYTEA: u32 = 17;

fn text(bytes: &str) -> Form {
    Form::Text(bytes.as_bytes().to_vec())
}

fn route(members: &[(&str, &str)]) -> Route {
    let members = members.iter();
    let envelope: BTreeMap<String, Template> =
        members.map(|(name, text)| ((*name).to_owned(), Template::parse(text).unwrap())).collect();
    Route { envelope, ..Route::default() }
}

/// The value of a row: its payload is of the type `oid`, and it has an integer, a boolean and a JSON
/// document beside it.
fn value(members: &[(&str, &str)], oid: u32, payload: Form) -> Result<String, EventError> {
    let shape = [
        ("id", 2950),
        ("aggregatetype", 1043),
        ("aggregateid", 1043),
        ("type", TEXT),
        ("payload", oid),
        ("n", 23),
        ("flag", 16),
        ("meta", JSONB),
        ("raw", BYTEA),
    ];
    let plan = Plan::compile(&outbox(route(members)), 0, &relation(&shape), true).unwrap();
    let row = [
        text(ID),
        text("order"),
        text("order-42"),
        text("Order \"Placed\""),
        payload,
        Form::Binary(vec![0, 0, 0, 7]),
        Form::Binary(vec![1]),
        text(r#"{"tenant": {"id": "acme"}, "n": 1}"#),
        Form::Binary(vec![0xff, 0]),
    ];
    match extract_with(&plan, &row, &mut ExtractScratch::default()) {
        Ok(event) => Ok(String::from_utf8(event.value.unwrap()).unwrap()),
        Err(RowError::Event(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_payload_and_the_columns_are_members_with_the_types_of_their_columns() {
    let members = [
        ("eventType", "${type}"),
        ("flag", "${flag}"),
        ("id", "${id}"),
        ("kind", "a-${n}"),
        ("meta", "${meta}"),
        ("n", "${n}"),
        ("raw", "${raw}"),
        ("tenant", "${meta.tenant.id}"),
    ];
    let found = value(&members, JSONB, text(r#"{"total": 1.50}"#)).unwrap();
    let expected = format!(
        r#"{{"payload":{{"total": 1.50}},"eventType":"Order \"Placed\"","flag":true,"id":"{ID}","kind":"a-7","meta":{{"tenant": {{"id": "acme"}}, "n": 1}},"n":7,"raw":"/wA=","tenant":"acme"}}"#
    );
    assert_eq!(found, expected);
    serde_json::from_str::<serde_json::Value>(&found).unwrap();
}

#[test]
fn a_payload_is_written_as_its_type_says_and_null_is_null() {
    let of = |oid, payload| value(&[("gone", "${meta.gone}")], oid, payload);
    let text_payload = of(TEXT, text("{\"a\": 1}\n")).unwrap();
    assert_eq!(text_payload, r#"{"payload":"{\"a\": 1}\n","gone":null}"#);
    assert_eq!(
        of(BYTEA, Form::Binary(b"hi".to_vec())).unwrap(),
        r#"{"payload":"aGk=","gone":null}"#
    );
    assert_eq!(of(JSONB, Form::Null).unwrap(), r#"{"payload":null,"gone":null}"#);
    let partly = value(&[("x", "a-${meta.gone}")], JSONB, Form::Null).unwrap();
    assert_eq!(partly, r#"{"payload":null,"x":null}"#);
}

#[test]
fn text_that_is_not_utf8_is_an_error_of_the_event() {
    let error = value(&[("x", "${type}")], TEXT, Form::Text(vec![0xff])).unwrap_err();
    assert_eq!(error.class(), "bad-value");
    assert_eq!(error.to_string(), format!("event {ID}: column payload does not hold UTF-8 text"));
}

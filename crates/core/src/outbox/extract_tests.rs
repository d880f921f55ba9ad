//! Rows to events: every rule by example.

use std::collections::BTreeMap;

use super::*;
use crate::base::lsn::Lsn;
use crate::base::template::Template;
use crate::outbox::EventError;
use crate::outbox::settings::{Columns, Preset, Route};
use crate::pgoutput::encoder::{Form, insert};
use crate::pgoutput::message::Message;
use crate::pgoutput::relation::Column;

pub(crate) const ID: &str = "6f1d9a52-3c0e-4c57-9d0b-2a6f0c9b7e11";
const COMMIT_US: i64 = 1_795_266_631_227_183;

pub(crate) fn columns() -> Columns {
    Columns::default()
}

pub(crate) fn route() -> Route {
    Route::default()
}

pub(crate) fn outbox(route: Route) -> OutboxTable {
    OutboxTable { route, ..OutboxTable::default() }
}

pub(super) const SHAPE: [(&str, u32); 7] = [
    ("id", 25),
    ("aggregatetype", 1043),
    ("aggregateid", 1043),
    ("type", 25),
    ("payload", 17),
    ("headers", 3802),
    ("traceparent", 25),
];

pub(crate) fn relation(shape: &[(&str, u32)]) -> Relation {
    let columns = shape.iter().map(|(name, oid)| Column { name: (*name).into(), type_oid: *oid });
    Relation {
        oid: 7,
        namespace: "public".into(),
        name: "outbox".into(),
        columns: columns.collect(),
    }
}

fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

fn text(bytes: &str) -> Form {
    Form::Text(bytes.as_bytes().to_vec())
}

fn row() -> Vec<Form> {
    vec![
        text(ID),
        text("order"),
        text("order-42"),
        text("OrderPlaced"),
        Form::Binary(b"\x00raw".to_vec()),
        Form::Null,
        text("00-trace"),
    ]
}

fn row_with<const CHANGES: usize>(changes: [(usize, Form); CHANGES]) -> Vec<Form> {
    let mut forms = row();
    for (at, form) in changes {
        forms[at] = form;
    }
    forms
}

/// An event that owns what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) id: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) partition: Option<i32>,
}

impl Owned {
    fn of(event: &Outbound<'_>) -> Owned {
        let headers = event.headers.iter();
        assert_eq!(event.commit_unix_us, COMMIT_US);
        Owned {
            topic: event.topic.into(),
            key: event.key.map(<[u8]>::to_vec),
            value: event.value.map(<[u8]>::to_vec),
            id: event.id.into(),
            headers: headers.map(|(name, value)| ((*name).into(), value.to_vec())).collect(),
            partition: event.partition,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| std::str::from_utf8(value).unwrap())
    }

    fn names(&self) -> Vec<&str> {
        self.headers.iter().map(|(name, _)| name.as_str()).collect()
    }
}

pub(super) fn transaction() -> CommitStamp {
    let mut transaction = CommitStamp::default();
    transaction.begin(Lsn::from_wire(0x16_B374_D848), COMMIT_US);
    transaction
}

pub(crate) fn extract_with(
    plan: &Plan,
    forms: &[Form],
    scratch: &mut ExtractScratch,
) -> Result<Owned, RowError> {
    let bytes = insert(7, forms);
    let Ok(Message::Insert { tuple, .. }) = Message::parse(&bytes) else { panic!() };
    let (transaction, mut headers) = (transaction(), HeaderSlots::new());
    plan.extract(tuple, &transaction, scratch, &mut headers).map(|event| Owned::of(&event))
}

fn extract(route: Route, forms: &[Form]) -> Result<Owned, RowError> {
    let plan = Plan::compile(&outbox(route), 0, &relation(&SHAPE), true).unwrap();
    extract_with(&plan, forms, &mut ExtractScratch::default())
}

/// The rest of a row that is no event.
fn salvage(route: Route, forms: &[Form]) -> Owned {
    let plan = Plan::compile(&outbox(route), 0, &relation(&SHAPE), true).unwrap();
    let bytes = insert(7, forms);
    let Ok(Message::Insert { tuple, .. }) = Message::parse(&bytes) else { panic!() };
    let (transaction, mut scratch, mut headers) =
        (transaction(), ExtractScratch::default(), HeaderSlots::new());
    Owned::of(&plan.salvage(tuple, &transaction, &mut scratch, &mut headers).unwrap())
}

fn refused(route: Route, forms: &[Form]) -> EventError {
    match extract(route, forms) {
        Err(RowError::Event(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_default_route_gives_the_documented_event() {
    let event = extract(route(), &row()).unwrap();
    assert_eq!(event.topic, "outbox.event.order");
    assert_eq!(event.key.as_deref(), Some(&b"order-42"[..]));
    assert_eq!(event.value.as_deref(), Some(&b"\x00raw"[..]));
    assert_eq!(event.id, ID);
    assert_eq!(event.names(), ["id", "event_type", "traceparent", "commit_ts", "lsn"]);
    assert_eq!(event.header("id"), Some(ID));
    assert_eq!(event.header("event_type"), Some("OrderPlaced"));
    assert_eq!(event.header("traceparent"), Some("00-trace"));
    assert_eq!(event.header("commit_ts"), Some("2026-11-21T13:10:31.227183Z"));
    assert_eq!(event.header("lsn"), Some("16/B374D848"));
    assert_eq!(event.partition, None);
}

#[test]
fn the_debezium_preset_has_the_id_only() {
    let forms = row_with([(5, text(r#"{"tenant": "acme"}"#))]);
    let event = extract(Route { preset: Preset::Debezium, ..route() }, &forms).unwrap();
    assert_eq!(event.names(), ["id"]);
}

#[test]
fn nulls_that_matter_are_told() {
    let error = refused(route(), &row_with([(1, Form::Null)]));
    assert_eq!(
        error.to_string(),
        format!(
            "event {ID}: column aggregatetype is NULL, and route.topic = \
             \"outbox.event.${{aggregatetype}}\" needs it"
        )
    );
    let key = Some(template("k-${aggregateid}"));
    let error = refused(Route { key, ..route() }, &row_with([(2, Form::Null)]));
    assert_eq!(
        (error.class(), error.to_string().contains("route.key")),
        ("null-in-template", true)
    );
    assert_eq!(
        refused(route(), &row_with([(0, Form::Null)])).to_string(),
        "event (unknown): column id is NULL, and every event needs it"
    );
}

#[test]
fn a_topic_must_be_one() {
    let own = || Route { topic: template("${aggregatetype}"), ..route() };
    for bad in ["a b", "a/b", "Ü", "", &"x".repeat(250)] {
        assert_eq!(refused(own(), &row_with([(1, text(bad))])).class(), "bad-topic", "{bad}");
    }
    let longest = row_with([(1, text(&"x".repeat(249)))]);
    assert_eq!(extract(own(), &longest).unwrap().topic.len(), 249);
    let constant = Route { topic: template("orders"), ..route() };
    assert_eq!(extract(constant, &row()).unwrap().topic, "orders");
}

#[test]
fn row_headers_and_route_headers_follow_and_no_name_comes_twice() {
    let json = b"\x01{\"tenant\": \"acme\", \"n\": 1, \"id\": \"x\", \"who\": \"row\"}";
    let forms = row_with([(5, Form::Binary(json.to_vec()))]);
    let headers = BTreeMap::from([
        ("who".into(), template("route-${type}")),
        ("event_type".into(), template("v2")),
        ("id".into(), template("never")),
    ]);
    let event = extract(Route { headers, ..route() }, &forms).unwrap();
    let expected = ["id", "traceparent", "commit_ts", "lsn", "tenant", "n", "event_type", "who"];
    assert_eq!(event.names(), expected);
    assert_eq!(event.header("id"), Some(ID));
    assert_eq!(event.header("tenant"), Some("acme"));
    assert_eq!(event.header("n"), Some("1"));
    assert_eq!(event.header("who"), Some("route-OrderPlaced"));
    assert_eq!(event.header("event_type"), Some("v2"));
}

#[test]
fn a_route_header_whose_column_is_null_is_left_out() {
    let headers = BTreeMap::from([("kind".into(), template("a-${type}"))]);
    let event = extract(Route { headers, ..route() }, &row_with([(3, Form::Null)])).unwrap();
    assert_eq!(event.header("kind"), None);
}

#[test]
fn headers_must_be_an_object_and_few() {
    let mut forms = row();
    forms[5] = text("[1]");
    assert_eq!(refused(route(), &forms).class(), "headers-not-object");
    let many: Vec<_> = (0..28).map(|n| format!("\"h{n}\": {n}")).collect();
    forms[5] = text(&format!("{{{}}}", many.join(",")));
    assert_eq!(refused(route(), &forms).class(), "too-many-headers");
    forms[5] = text(&format!("{{{}}}", many[1..].join(",")));
    assert_eq!(extract(route(), &forms).unwrap().headers.len(), 32);
}

#[test]
fn values_not_of_their_type_are_event_errors_and_salvaged() {
    let mut forms = row();
    forms[5] = Form::Binary(b"\x02{}".to_vec());
    let error = refused(route(), &forms);
    assert_eq!(
        error.to_string(),
        format!("event {ID}: column headers does not hold jsonb of version 1")
    );
    forms[1] = Form::Unchanged;
    let saved = salvage(route(), &forms);
    assert_eq!((saved.topic.as_str(), saved.id.as_str()), ("", ID));
    assert_eq!(saved.key.as_deref(), Some(&b"order-42"[..]));
    assert_eq!(saved.value.as_deref(), Some(&b"\x00raw"[..]));
    assert_eq!(saved.names(), ["id"]);
}

#[test]
fn a_key_is_salvaged_beside_a_column_that_is_no_json() {
    let (topic, key) = (template("${headers.to}"), Some(template("${aggregateid.tenant}")));
    let route = Route { topic, key, preset: Preset::Debezium, ..Route::default() };
    let forms = row_with([(2, text("{\"tenant\": \"a\"}")), (5, text("{\"to\""))]);
    let saved = salvage(route, &forms);
    assert_eq!((saved.topic.as_str(), saved.key.as_deref()), ("", Some(&b"a"[..])));
}

#[test]
fn a_partition_column_is_a_non_negative_int() {
    let mut shape = SHAPE;
    shape[6] = ("part", 23);
    let route = Route { partition: Some("part".into()), ..route() };
    let plan = Plan::compile(&outbox(route), 3, &relation(&shape), true).unwrap();
    assert_eq!(plan.outbox_index(), 3);
    let partition = |form: Form| {
        let forms = row_with([(6, form)]);
        extract_with(&plan, &forms, &mut ExtractScratch::default()).map(|event| event.partition)
    };
    assert_eq!(partition(Form::Binary(vec![0, 0, 0, 12])), Ok(Some(12)));
    assert_eq!(partition(Form::Null), Ok(None));
    let Err(RowError::Event(error)) = partition(Form::Binary(vec![0xFF; 4])) else { panic!() };
    assert_eq!(
        error.to_string(),
        format!("event {ID}: column part = \"-1\" is not a partition (0 to 2147483647)")
    );
}

#[test]
fn a_table_that_does_not_fit_is_told_with_what_it_has() {
    let compile = |shape: &[(&str, u32)], binary| {
        Plan::compile(&outbox(route()), 0, &relation(shape), binary).map(drop)
    };
    assert_eq!(compile(&SHAPE[..5], true), Ok(()), "headers and traceparent are optional");
    let error = compile(&SHAPE[..4], true).unwrap_err();
    assert_eq!(
        error.what,
        "the rows that are read next are of a time when table public.outbox had no column payload, which \
         columns.payload needs; it had: id, aggregatetype, aggregateid, type"
    );
    assert_eq!(error.code, "table.column-missing");
    assert!(error.mend.starts_with("if a column was renamed"), "{}", error.mend);
    assert!(error.mend.contains("set columns.payload to one of these columns"), "{}", error.mend);
    let without_topic = [SHAPE[0], SHAPE[2], SHAPE[4]];
    let error = compile(&without_topic, true).unwrap_err().what;
    assert!(error.contains("no column aggregatetype, which route.topic needs"), "{error}");
    let mut shape = SHAPE;
    shape[3] = ("type", 16385);
    assert_eq!(compile(&shape, false), Ok(()));
    let fault = compile(&shape, true).unwrap_err();
    assert_eq!(fault.code, NEEDS_TEXT);
    let needs_text =
        "column type (type oid 16385) of table public.outbox is read in text form only";
    assert_eq!(fault.what, needs_text);
    let unused = [SHAPE.as_slice(), &[("created_at", 1184)]].concat();
    assert_eq!(compile(&unused, true), Ok(()), "a column nobody uses may be of any type");
}

#[test]
fn too_much_is_refused_when_compiled() {
    let names: Vec<_> = (0..33).map(|n| format!("c{n}")).collect();
    let shape: Vec<_> =
        SHAPE.iter().copied().chain(names.iter().map(|n| (n.as_str(), 25))).collect();
    let headers = |count| {
        let named = names[..count].iter();
        named.map(|name: &String| (name.clone(), Template::column(name))).collect()
    };
    let compile = |headers| {
        Plan::compile(&outbox(Route { headers, ..route() }), 0, &relation(&shape), true).map(drop)
    };
    let refused = |headers| compile(headers).unwrap_err().what;
    let columns = "the route of public.outbox uses more than 32 columns";
    assert_eq!(refused(headers(33)), columns);
    let constant = |name: &String| (name.clone(), template("c"));
    let constants = names.iter().map(constant).collect();
    assert_eq!(refused(constants), "the route of public.outbox sets more than 32 headers");
}

#[test]
fn a_row_of_another_shape_breaks_the_stream_not_the_event() {
    let mut forms = row();
    forms.pop();
    let Err(RowError::Decode(error)) = extract(route(), &forms) else { panic!() };
    assert_eq!(error.what, "row and relation differ in columns");
}

#[test]
fn a_member_of_a_json_column_routes_and_is_read_from_every_type() {
    let route = || Route {
        topic: template("t.${headers.to}"),
        key: Some(template("${headers.PARTITION_ID}")),
        headers: BTreeMap::from([("who".into(), template("${headers.who.name}"))]),
        preset: Preset::Debezium,
        ..Route::default()
    };
    let json = r#"{"to": "orders", "PARTITION_ID": "a\u00e9", "who": {"name": 7}}"#;
    let jsonb = [&[1], json.as_bytes()].concat();
    for (oid, form) in [
        (25, text(json)),
        (114, text(json)),
        (3802, Form::Binary(jsonb)),
        (17, text(&format!("\\x{}", crate::base::encoding::hex(json.as_bytes())))),
    ] {
        let mut shape = SHAPE;
        shape[5] = ("headers", oid);
        let plan = Plan::compile(&outbox(route()), 0, &relation(&shape), true).unwrap();
        let forms = row_with([(5, form)]);
        let event = extract_with(&plan, &forms, &mut ExtractScratch::default()).unwrap();
        assert_eq!(event.topic, "t.orders", "{oid}");
        assert_eq!(event.key.as_deref(), Some("aé".as_bytes()), "{oid}");
        assert_eq!(event.header("who"), Some("7"), "{oid}");
    }
}

#[test]
fn a_member_that_is_missing_is_null_and_a_column_that_is_no_json_is_an_error() {
    let key = || Some(template("${headers.PARTITION_ID}"));
    let mut forms = row();
    forms[5] = text("{}");
    assert_eq!(extract(Route { key: key(), ..route() }, &forms).unwrap().key, None);
    let error = refused(Route { topic: template("${headers.to}"), ..route() }, &forms);
    let needs = "column headers.to is NULL, and route.topic = \"${headers.to}\" needs it";
    assert_eq!(error.to_string(), format!("event {ID}: {needs}"));
    forms[5] = text("{\"PARTITION_ID\"");
    let error = refused(Route { key: key(), preset: Preset::Debezium, ..route() }, &forms);
    assert_eq!(error.class(), "not-json");
    assert_eq!(
        error.to_string(),
        format!("event {ID}: column headers is not JSON: it is not complete")
    );
    let absent = Route { key: Some(template("${meta.k}")), ..route() };
    let fault = Plan::compile(&outbox(absent), 0, &relation(&SHAPE), true).unwrap_err();
    assert!(fault.what.contains("no column meta, which route.key needs"), "{}", fault.what);
}

#[test]
fn a_plan_names_the_optional_columns_that_the_earlier_one_has_and_it_has_not() {
    let plan = |shape: &[(&str, u32)], route: Route| {
        Plan::compile(&outbox(route), 0, &relation(shape), true).unwrap()
    };
    let (whole, needed) = (plan(&SHAPE, route()), plan(&SHAPE[..5], route()));
    // WHEN columns are dropped THEN they are named, in the next description only
    assert_eq!(needed.lost_columns(&whole), ["traceparent", "headers"]);
    assert!(needed.lost_columns(&needed).is_empty() && whole.lost_columns(&whole).is_empty());
    assert!(whole.lost_columns(&needed).is_empty(), "they are there again");
    // WHEN one is renamed
    let mut renamed = SHAPE;
    renamed[3].0 = "kind";
    assert_eq!(plan(&renamed, route()).lost_columns(&whole), ["type"]);
    // THEN a route that does not read it loses nothing
    let debezium = || Route { preset: Preset::Debezium, ..route() };
    let (before, after) = (plan(&SHAPE, debezium()), plan(&renamed, debezium()));
    assert!(after.lost_columns(&before).is_empty());
}

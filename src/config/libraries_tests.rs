//! The tables of libraries: each file with its golden table and row, and what stands over what.

use std::collections::BTreeMap;

use super::*;
use crate::base::event::HeaderSlots;
use crate::base::lsn::Lsn;
use crate::config::library_signature;
use crate::outbox::libraries::{LIBRARIES, Library, UNFIT_TABLES};
use crate::outbox::settings::OutboxTable;
use crate::outbox::{CommitStamp, ExtractScratch, Plan};
use crate::pgoutput::encoder::{Form, insert};
use crate::pgoutput::message::Message;
use crate::pgoutput::relation::{Column, Relation};

fn with_table(lines: &str) -> String {
    format!("{MINIMAL}[[source.outbox]]\n{lines}\n")
}

fn table_of(lines: &str) -> OutboxTable {
    loaded(&with_table(lines)).config.source.outboxes.remove(0)
}

fn golden(library: &str) -> toml::Table {
    let path = format!("{}/tests/golden/libraries/{library}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

fn texts(table: &toml::Table, key: &str) -> BTreeMap<String, String> {
    let entries = table[key].as_table().unwrap().iter();
    let texts =
        entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// Names and type object ids of the columns of the golden table.
fn columns(golden: &toml::Table) -> Vec<(String, u32)> {
    let ddl = golden["ddl"].as_str().unwrap();
    let (_, body) = ddl.split_once("CREATE TABLE ").unwrap().1.split_once("(\n").unwrap();
    let lines = body.lines().take_while(|line| !line.starts_with(')'));
    let column = |line: &str| {
        let (name, rest) = line.trim().split_once(' ').unwrap();
        let name = match name.strip_prefix('"') {
            Some(quoted) => quoted.trim_end_matches('"').to_owned(),
            None => name.to_lowercase(),
        };
        let kind = rest.split([' ', '(', ',']).next().unwrap();
        let oid = match kind {
            "bigserial" | "bigint" => 20,
            "int" => 23,
            "smallint" => 21,
            "boolean" => 16,
            "bytea" => 17,
            "text" => 25,
            "varchar" => 1043,
            "json" => 114,
            "jsonb" => 3802,
            "uuid" => 2950,
            "timestamp" => 1114,
            "timestamptz" => 1184,
            "xid8" => 5069,
            other => panic!("{other}"),
        };
        (name, oid)
    };
    lines.filter(|line| !line.trim().starts_with("PRIMARY KEY")).map(column).collect()
}

#[test]
fn the_golden_row_of_every_library_becomes_the_golden_event() {
    for library in LIBRARIES {
        let name = library.name;
        let golden = golden(name);
        let outbox = table_of(&format!("library = \"{name}\""));
        let columns = columns(&golden);
        let relation = Relation {
            oid: 7,
            namespace: outbox.schema.clone(),
            name: outbox.table.clone(),
            columns: columns
                .iter()
                .map(|(name, type_oid)| Column { name: name.as_str().into(), type_oid: *type_oid })
                .collect(),
        };
        let ddl = golden["ddl"].as_str().unwrap();
        assert!(
            ddl.contains(&format!("CREATE TABLE {}.{} (", outbox.schema, outbox.table)),
            "{name}"
        );
        if let Some(order) = &outbox.order {
            assert!(columns.iter().any(|(column, _)| column == order), "{name}");
        }
        // GIVEN a binary stream: no column that is used needs the text form
        let plan = Plan::compile(&outbox, 0, &relation, true).unwrap_or_else(|it| panic!("{it}"));
        let row = texts(&golden, "row");
        let form = |(name, _): &(String, u32)| match row.get(name) {
            Some(value) => Form::Text(value.as_bytes().to_vec()),
            None => Form::Null,
        };
        let bytes = insert(7, &columns.iter().map(form).collect::<Vec<_>>());
        let Ok(Message::Insert { tuple, .. }) = Message::parse(&bytes) else { panic!("{name}") };
        let mut stamp = CommitStamp::default();
        stamp.begin(Lsn::from_wire(0x16_B374_D848), 1_795_266_631_227_183);
        let (mut scratch, mut slots) = (ExtractScratch::default(), HeaderSlots::new());
        let event = plan.extract(tuple, &stamp, &mut scratch, &mut slots);
        let event = event.unwrap_or_else(|error| panic!("{name}: {error}"));
        // THEN destination, key, id, value and headers are those of the library
        let expected = texts(&golden, "event");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(event.topic, expected["topic"], "{name}");
        assert_eq!(event.key.map(text).as_ref(), expected.get("key"), "{name}");
        assert_eq!(event.id, expected["id"], "{name}");
        match expected.get("value_hex") {
            Some(hex) => assert_eq!(crate::base::encoding::hex(event.value.unwrap()), *hex),
            None => assert_eq!(event.value.map(text).as_ref(), expected.get("value"), "{name}"),
        }
        let headers = event.headers.iter().filter(|(name, _)| !["commit_ts", "lsn"].contains(name));
        let headers: BTreeMap<_, _> =
            headers.map(|(name, value)| ((*name).to_owned(), text(value))).collect();
        let expected = texts(golden["event"].as_table().unwrap(), "headers");
        assert_eq!(headers, expected, "{name}");
    }
}

#[test]
fn the_table_of_a_library_is_recognised_as_its_own_and_no_other() {
    for library in LIBRARIES {
        let columns = columns(&golden(library.name));
        let fits =
            |wanted: &[String]| wanted.iter().all(|it| columns.iter().any(|(name, _)| name == it));
        let own = library_signature(library).columns;
        assert!(!own.is_empty() && fits(&own), "{}", library.name);
        for other in LIBRARIES.iter().filter(|other| other.name != library.name) {
            let other = library_signature(other).columns;
            assert!(!fits(&other) || other.len() < own.len(), "{} as {other:?}", library.name);
        }
        for unfit in UNFIT_TABLES {
            let unfit: Vec<String> =
                unfit.recognised_by.iter().map(|name| (*name).to_owned()).collect();
            assert!(!fits(&unfit), "{} as {unfit:?}", library.name);
        }
    }
}

#[test]
fn every_library_is_in_the_documents() {
    let path = format!("{}/docs/outbox.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap();
    for Library { name, .. } in LIBRARIES {
        let table = table_of(&format!("library = \"{name}\""));
        let line = format!("| `{name}` | `{}.{}` |", table.schema, table.table);
        assert!(page.contains(&line), "{line}");
    }
}

#[test]
fn explicit_keys_stand_over_the_library_and_the_library_over_the_common_route() {
    let text = "\
library = \"tomorrow-one\"
table = \"shop.out\"
columns = { key = \"tenant\" }
route = { headers = { origin = \"shop\" }, preset = \"debezium\" }
[route]
topic = \"common\"
key = \"${common}\"";
    let loaded = loaded(&with_table(text));
    let outbox = &loaded.config.source.outboxes[0];
    assert_eq!((outbox.schema.as_str(), outbox.table.as_str()), ("shop", "out"));
    assert_eq!((outbox.columns.key.as_str(), outbox.columns.payload.as_str()), ("tenant", "value"));
    assert_eq!(outbox.route.topic.to_string(), "${topic}");
    assert_eq!(outbox.order.as_deref(), Some("id"));
    // What the library does not give comes from the common route.
    assert_eq!(outbox.route.key.as_ref().unwrap().to_string(), "${common}");
    assert_eq!(outbox.route.preset, Preset::Debezium);
    let shown = show(&loaded.effective);
    for line in [
        "payload = \"value\"  # library tomorrow-one\n",
        "topic = \"${topic}\"  # library tomorrow-one\n",
        "type = \"type\"  # default\n",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    assert!(shown.contains("key = \"tenant\"  # /"), "{shown}");
}

#[test]
fn a_key_column_stands_for_the_key_template_of_the_library() {
    let key = |text: &str| {
        let table = table_of(text);
        table.route.key(&table.columns).to_string()
    };
    assert_eq!(key("library = \"pgx-outbox\""), "${id}");
    assert_eq!(key("library = \"pgx-outbox\"\ncolumns = { key = \"customer\" }"), "${customer}");
}

#[test]
fn an_unknown_library_is_told_with_those_that_are_known() {
    let told = complaints(&with_table("library = \"tomorow-one\""));
    assert!(told.contains("did you mean \"tomorrow-one\"?"), "{told}");
    assert!(told.contains("brighter, dafda"), "{told}");
}

#[test]
fn a_row_filter_is_one_of_the_slot() {
    assert_eq!(table_of("library = \"emmett\"").filter.as_deref(), Some("message_kind = 'E'"));
    assert_eq!(table_of("where = \"a IS NULL\"").filter.as_deref(), Some("a IS NULL"));
    // An empty text takes away the filter of the library.
    let all = "library = \"emmett\"\nwhere = \"\"";
    assert_eq!(table_of(all).filter, None);
    load_with(&with_table(all), &[], &["source.mode=polling"]).unwrap();
    let told = load_with(&with_table("where = \"a\""), &[], &["source.mode=polling"]).unwrap_err();
    let told = rendered(&told);
    assert!(
        told.contains("source.outbox[0].where: a row filter belongs to a publication"),
        "{told}"
    );
}

#[test]
fn the_name_of_the_table_is_put_into_its_templates() {
    let outbox =
        table_of("table = \"a.events\"\nroute = { topic = \"x.${table}\", key = \"${id}\" }");
    assert_eq!(outbox.route.topic.constant(), Some("x.events"));
    let messages = "[source.messages]\nroute = { topic = \"${table}\" }\n";
    let told = complaints(&format!("{MINIMAL}{messages}"));
    assert!(told.contains("messages have no table"), "{told}");
}

#[test]
fn no_member_of_the_payload_is_read_and_the_envelope_has_one_payload() {
    let told = complaints(&with_table("route = { topic = \"${payload.kind}\" }"));
    assert!(
        told.contains("${payload.kind} is a member of the payload, which is never parsed"),
        "{told}"
    );
    let told = complaints(&with_table("route = { envelope = { payload = \"${type}\" } }"));
    assert!(
        told.contains("route.envelope.payload: the member payload is the payload itself"),
        "{told}"
    );
    let outbox = table_of("route = { envelope = { eventType = \"${type}\" } }");
    assert_eq!(outbox.route.envelope["eventType"].to_string(), "${type}");
}

#[test]
fn the_format_of_debezium_chooses_its_preset_unless_one_is_written() {
    let route = |lines: &str| loaded(&format!("{MINIMAL}{lines}"));
    let chosen = route("[route]\nformat = \"debezium\"\n");
    assert_eq!(chosen.config.source.outboxes[0].route.preset, Preset::Debezium);
    let shown = show(&chosen.effective);
    assert!(shown.contains("preset = \"debezium\"  # /"), "{shown}");
    let written = route("[route]\nformat = \"debezium\"\npreset = \"walrelay\"\n");
    assert_eq!(written.config.source.outboxes[0].route.preset, Preset::Walrelay);
    let of_table = table_of("route = { format = \"debezium\" }");
    assert_eq!(of_table.route.preset, Preset::Debezium);
}

#[test]
fn where_postgres_is_needs_no_other_key() {
    let file = TempFile::new("[sink]\nkind = \"kafka\"\n");
    let of = |settings: &[&str]| source_connection(&request(&file, &[], settings));
    let connection = of(&["source.url=postgres://u@h/shop"]).unwrap();
    assert_eq!((connection.user.as_str(), connection.dbname.as_str()), ("u", "shop"));
    let told = rendered(&of(&[]).unwrap_err());
    assert!(told.contains("error[config.missing-key]: source.url: is missing"), "{told}");
    assert!(!told.contains("brokers"), "{told}");
}

//! The outbox stage over what a real Postgres sent (tests/golden), and the rules about tables.

use std::fmt::Write as _;
use std::path::Path;

use super::extract::tests::{columns, route};
use super::settings::{OutboxSection, Route};
use super::*;
use crate::base::encoding::push_unhexed;
use crate::base::event::{HeaderSlots, Outbound};
use crate::base::settings::visit::section_of;
use crate::base::template::Template;
use crate::pgoutput::message::Message;

fn kinds() -> OutboxTable {
    let template = |text| Template::parse(text).unwrap();
    let columns = settings::Columns {
        payload: "raw".into(),
        event_type: "fixed".into(),
        headers: "-".into(),
        ..columns()
    };
    let header = |name: &str| (name.to_owned(), Template::column(name));
    let route = Route {
        topic: template("kinds.${medium}.${yes}"),
        key: Some(template("${small}")),
        headers: ["js", "short", "feeling", "yes"].map(header).into(),
        partition: Some("medium".into()),
        ..route()
    };
    OutboxTable {
        schema: "public".into(),
        table: "kinds".into(),
        filter: None,
        library: None,
        columns,
        order: None,
        route,
    }
}

fn outbox() -> OutboxTable {
    OutboxTable::default()
}

fn both() -> Outboxes {
    let messages = Messages { prefix: "outbox".into(), columns: columns(), route: route() };
    Outboxes::new(vec![outbox(), kinds()], Some(&messages)).unwrap()
}

fn from_hex(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_unhexed(line.as_bytes(), &mut bytes).unwrap();
    bytes
}

fn capture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn describe(event: &Outbound<'_>, text: &mut String) {
    let bytes = |bytes: Option<&[u8]>| {
        bytes.map_or_else(|| "null".to_owned(), |bytes| bytes.escape_ascii().to_string())
    };
    writeln!(text, "event {} to {}", event.id, event.topic).unwrap();
    writeln!(text, "    key {} partition {:?}", bytes(event.key), event.partition).unwrap();
    for (name, value) in event.headers {
        writeln!(text, "    {name}: {}", value.escape_ascii()).unwrap();
    }
    writeln!(text, "    = {}", bytes(event.value)).unwrap();
}

/// Everything of a capture that becomes an event, or the error it becomes.
fn events_of(mut outboxes: Outboxes, name: &str, binary: bool) -> Result<String, Fault> {
    let (mut text, mut scratch) = (String::new(), ExtractScratch::default());
    let mut transaction = CommitStamp::default();
    for line in capture(name).lines() {
        let bytes = from_hex(line);
        let mut headers = HeaderSlots::new();
        let extracted = match Message::parse(&bytes).unwrap() {
            Message::Begin { final_lsn, commit_ts, .. } => {
                transaction.begin(final_lsn, commit_ts);
                continue;
            }
            Message::Relation(relation) => {
                assert!(outboxes.learn(&relation, binary)?);
                continue;
            }
            Message::Insert { relation, tuple } => {
                let plan = outboxes.plan(relation).unwrap().unwrap();
                plan.extract(tuple, &transaction, &mut scratch, &mut headers)
            }
            Message::Logical { transactional, lsn, prefix, content } => {
                let plan = outboxes.messages().filter(|it| it.wants(transactional, &prefix));
                let Some(plan) = plan else { continue };
                plan.extract(lsn, content, &transaction, &mut scratch, &mut headers)
                    .map_err(RowError::Event)
            }
            _ => continue,
        };
        match extracted {
            Ok(event) => describe(&event, &mut text),
            Err(error) => writeln!(text, "{error}").unwrap(),
        }
    }
    Ok(text)
}

/// GIVEN one history, captured in both forms WHEN events are made of it THEN they are the same,
/// and those of the golden file. An enum has no binary form we read: the stream says so first.
#[test]
fn text_and_binary_captures_give_the_golden_events() {
    let found = events_of(both(), "text.hex", false).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/events.txt");
    if std::env::var_os("WALRELAY_BLESS").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&golden).unwrap());

    let fault = events_of(both(), "binary.hex", true).unwrap_err();
    assert_eq!(fault.code, NEEDS_TEXT);
    assert!(fault.what.starts_with("column feeling "), "{fault}");
}

/// The same, over the columns whose binary form is read.
#[test]
fn a_binary_row_is_the_text_row() {
    let rows = |name: &str, binary| {
        let mut table = kinds();
        table.route.headers.remove("feeling");
        let outboxes = Outboxes::new(vec![outbox(), table], None).unwrap();
        events_of(outboxes, name, binary).unwrap()
    };
    let binary = rows("binary.hex", true);
    assert_eq!(binary.lines().filter(|line| line.starts_with("event")).count(), 5);
    assert_eq!(binary, rows("text.hex", false));
}

fn relation(oid: u32, name: &str, columns: &[&str]) -> Relation {
    let column =
        |name: &&str| crate::pgoutput::relation::Column { name: (*name).to_owned(), type_oid: 25 };
    Relation {
        oid,
        namespace: "public".into(),
        name: name.into(),
        columns: columns.iter().map(column).collect(),
    }
}

#[test]
fn tables_are_known_by_oid_once_described() {
    let mut outboxes = both();
    let whole = ["id", "aggregatetype", "aggregateid", "payload"];
    assert_eq!(outboxes.plan(9).map(drop), Err(UnknownRelation(9)));
    assert_eq!(outboxes.learn(&relation(9, "outbox", &whole), true), Ok(true));
    assert_eq!(outboxes.learn(&relation(5, "orders", &["id"]), true), Ok(false));
    assert_eq!(outboxes.plan(9).unwrap().unwrap().outbox_index(), 0);
    assert!(outboxes.plan(5).unwrap().is_none());
    // Another schema's table of that name is not ours.
    let mut foreign = relation(6, "outbox", &whole);
    foreign.namespace = "other".into();
    assert_eq!(outboxes.learn(&foreign, true), Ok(false));
    outboxes.forget();
    assert_eq!(outboxes.plan(9).map(drop), Err(UnknownRelation(9)));
}

#[test]
fn a_domain_is_read_as_the_type_that_it_is_over() {
    let mut outboxes = both();
    let mut described = relation(9, "outbox", &["id", "aggregatetype", "aggregateid", "payload"]);
    described.columns[3].type_oid = 20_000;
    let unknown = outboxes.learn(&outboxes.resolve(described.clone()), true).unwrap_err();
    assert_eq!(unknown.code, NEEDS_TEXT);
    // WHEN Postgres has described the type of the column
    outboxes.learn_type(20_000, "", "bytea");
    outboxes.learn_type(20_001, "shop", "bytea");
    let resolved = outboxes.resolve(described.clone());
    assert_eq!(resolved.columns[3].type_oid, 17);
    assert_eq!(outboxes.learn(&resolved, true), Ok(true));
    described.columns[3].type_oid = 20_001;
    assert_eq!(outboxes.resolve(described.clone()), described);
}

/// GIVEN an outbox in use WHEN a column it needs is dropped THEN no row passes with the old shape.
#[test]
fn a_shape_that_no_longer_fits_closes_the_table() {
    let mut outboxes = both();
    let whole = ["id", "aggregatetype", "aggregateid", "payload"];
    outboxes.learn(&relation(9, "outbox", &whole), true).unwrap();
    let error = outboxes.learn(&relation(9, "outbox", &whole[..3]), true).unwrap_err();
    assert_eq!(error.code, "table.column-missing");
    assert_eq!(outboxes.plan(9).map(drop), Err(UnknownRelation(9)));
    assert_eq!(outboxes.learn(&relation(9, "outbox", &whole), true), Ok(true));
    // Columns that changed places are found again.
    let turned = ["payload", "aggregateid", "aggregatetype", "id"];
    assert_eq!(outboxes.learn(&relation(9, "outbox", &turned), true), Ok(true));
}

/// Postgres describes a partition by the column numbers of its root, also where the rows come under the name of the root.
#[test]
fn a_partition_that_is_described_without_columns_is_a_fault_only_for_its_rows() {
    let mut outboxes = both();
    let whole = ["id", "aggregatetype", "aggregateid", "payload"];
    outboxes.set_known(vec![(10, "public".into(), "outbox_2031".into(), 0)]);
    let partition = |columns| relation(10, "outbox_2031", columns);
    assert_eq!(outboxes.learn(&partition(&whole[..3]), true), Ok(true));
    assert!(outboxes.plan(10).unwrap().is_none());
    assert_eq!(outboxes.unfit(10).map(|fault| fault.code), Some("table.column-missing"));
    assert_eq!(outboxes.unfit(9), None);
    // WHEN it is described anew THEN its rows are events
    assert_eq!(outboxes.learn(&partition(&whole), true), Ok(true));
    assert!(outboxes.plan(10).unwrap().is_some() && outboxes.unfit(10).is_none());
}

#[test]
fn an_outbox_that_had_another_name_is_known_by_its_object_id() {
    let mut outboxes = both();
    outboxes.set_known(vec![(7, "public".into(), "outbox".into(), 0)]);
    let away = relation(7, "away", &["id", "aggregatetype", "aggregateid", "payload"]);
    assert_eq!(outboxes.learn(&away, false), Ok(true));
    assert!(outboxes.plan(7).unwrap().is_some());
}

#[test]
fn a_table_whose_name_contains_a_dot_cannot_be_configured() {
    let mut visit = section_of(&[("table", "public.ev.ents")]);
    drop(visit.read::<OutboxSection>());
    let told: Vec<&str> = visit.tree.problems.iter().map(|it| it.fault.what.as_str()).collect();
    let what = "table: \"public.ev.ents\" is not schema.table, without quotes; a name that contains a dot cannot be configured";
    assert_eq!(told, [what]);
}

use serde_json::json;

use super::*;
use crate::base::template::Template;
use crate::outbox::settings::Preset;

const RENAMED: &str = "; with a slot, rows that were written before a column was renamed have its old name: docs/postgres.md, \"Renaming a column\"";

fn table(columns: &[&str]) -> TableFacts {
    let column = |name: &&str| json!({ "name": name, "generated": false });
    let facts = json!({
        "schema": "public",
        "name": "outbox",
        "schema_exists": true,
        "kind": "r",
        "has_update_trigger": false,
        "member_oid": 1,
        "columns": columns.iter().map(column).collect::<Vec<_>>(),
        "similar": [],
    });
    serde_json::from_value(facts).unwrap()
}

/// The texts of the faults.
fn found(outbox: &OutboxTable) -> Vec<String> {
    let table = table(&["id", "aggregatetype", "aggregateid", "payload", "kind"]);
    assert_eq!(faults(&table, outbox, ReadBy::Slot), []);
    let found = absent_named(&table, outbox);
    assert!(found.iter().all(|fault| fault.code == "table.column-missing"), "{found:?}");
    let findings = judge(&[table], std::slice::from_ref(outbox));
    let judged = crate::base::finding::faults(&findings).cloned().collect::<Vec<_>>();
    assert_eq!(judged, found);
    found.into_iter().map(|fault| format!("{}; {}", fault.what, fault.mend)).collect()
}

#[test]
fn a_column_that_is_named_and_absent_is_told_even_if_events_can_do_without_it() {
    // GIVEN the default names, of which the table has none, and a name that it has
    let mut outbox = OutboxTable::default();
    assert!(found(&outbox).is_empty());
    outbox.columns.event_type = "kind".to_owned();
    assert!(found(&outbox).is_empty());
    // WHEN a name is misspelled
    outbox.columns.event_type = "kimd".to_owned();
    outbox.columns.headers = "metadata_of_event".to_owned();
    let told = found(&outbox);
    let first = "public.outbox has no column kimd, which columns.type names; it has id, aggregatetype, \
                 aggregateid, payload, kind; name column \"kind\" instead, as columns.type of [[source.outbox]]";
    assert_eq!(told[0], format!("{first}{RENAMED}"));
    assert!(told[1].contains("which columns.headers names"), "{told:?}");
    assert!(told[1].contains("remove columns.headers from [[source.outbox]]"), "{told:?}");
    // THEN the table of a library may lack what the library names
    outbox.library = Some("dafda".to_owned());
    assert!(found(&outbox).is_empty());
}

#[test]
fn a_named_column_that_no_event_has_need_not_be_there() {
    let mut outbox = OutboxTable::default();
    outbox.columns.event_type = "kimd".to_owned();
    outbox.columns.traceparent = "trace".to_owned();
    assert_eq!(found(&outbox).len(), 2);
    outbox.route.headers.insert("event_type".to_owned(), Template::literal("fixed"));
    assert_eq!(found(&outbox).len(), 1);
    outbox.route.preset = Preset::Debezium;
    assert!(found(&outbox).is_empty());
    // The type is a property of an AMQP message.
    outbox.route.exchange = Some(Template::literal("events"));
    assert_eq!(found(&outbox).len(), 1);
}

#[test]
fn a_column_of_another_name_is_never_to_be_renamed_in_the_table() {
    let mut outbox = OutboxTable::default();
    outbox.columns.payload = "paylaod".to_owned();
    let [fault] =
        &faults(&table(&["id", "aggregatetype", "aggregateid", "payload"]), &outbox, ReadBy::Slot)
            [..]
    else {
        panic!("one fault");
    };
    let mend = "name column \"payload\" instead, as columns.payload of [[source.outbox]]";
    assert_eq!(fault.mend, format!("{mend}{RENAMED}"));
}

#[test]
fn a_column_that_is_in_use_is_not_named_in_the_place_of_one_that_was_renamed() {
    // GIVEN a key column that was renamed, and that of the topic, whose name is similar to the old one
    let table = table(&["id", "aggregatetype", "akey", "type", "payload"]);
    let outbox = OutboxTable::default();
    let [fault] = &faults(&table, &outbox, ReadBy::Slot)[..] else { panic!("one fault") };
    let mend = "name a column that exists as columns.key of [[source.outbox]]";
    assert_eq!(fault.mend, format!("{mend}{RENAMED}"));
}

#[test]
fn a_column_that_is_needed_and_absent_is_told_with_the_keys_that_need_it() {
    let told = |outbox: &OutboxTable| {
        let table = table(&["id", "payload", "cust"]);
        let found = faults(&table, outbox, ReadBy::Polling).into_iter();
        let told = |fault: Fault| format!("{}; help: {}", fault.what, fault.mend);
        found.map(told).collect::<Vec<_>>()
    };
    // GIVEN a table that maps its key, and a key of [route] that names another column
    let mut outbox = OutboxTable::default();
    outbox.route.topic = Template::literal("all");
    outbox.columns.key = "cust".to_owned();
    assert!(told(&outbox).is_empty());
    outbox.route.key = Some(Template::column("aggregateid"));
    let text = "public.outbox has no column aggregateid, which route.key needs; it has id, payload, cust; help: name a \
                column that exists as route.key of [[source.outbox]]; a key of [route] applies to each table whose section \
                does not have it";
    assert_eq!(told(&outbox), [format!("{text}{RENAMED}")]);
    // GIVEN a column that several parts need, as by the defaults of polling
    outbox.route.topic = Template::column("event_key");
    (outbox.route.key, outbox.columns.key) = (None, "event_key".to_owned());
    let told_keys = told(&outbox).remove(0);
    assert!(told_keys.contains("which route.topic and columns.key need;"), "{told_keys}");
    outbox.route.headers.insert("tenant".to_owned(), Template::column("tenant"));
    assert!(told(&outbox)[1].contains("which route.headers.tenant needs;"), "{:?}", told(&outbox));
    // THEN the exchange is a key of another section
    outbox.route.headers.clear();
    outbox.route.exchange = Some(Template::column("region"));
    outbox.route.exchange_key = "sink.rabbitmq.exchange".to_owned();
    let told_exchange = told(&outbox).remove(1);
    let mend = format!("help: name a column that exists as sink.rabbitmq.exchange{RENAMED}");
    assert!(told_exchange.ends_with(&mend), "{told_exchange}");
}

#[test]
fn a_table_that_init_does_not_make_is_not_sent_to_init() {
    let absent = |outbox: &OutboxTable, similar: &[&str]| {
        let similar = similar.iter().map(|name| (*name).to_owned()).collect();
        let table = TableFacts { kind: None, similar, ..table(&[]) };
        let [fault] = &faults(&table, outbox, ReadBy::Slot)[..] else { panic!("one fault") };
        assert_eq!(fault.code, "table.missing");
        (fault.what.clone(), fault.mend.clone())
    };
    let mut outbox = OutboxTable::default();
    assert_eq!(absent(&outbox, &[]).1, "walrelay init");
    // WHEN it needs a column that the shipped table does not have THEN it is told as by init
    outbox.route.headers.insert("region".to_owned(), Template::parse("${region}").unwrap());
    let (what, mend) = absent(&outbox, &[]);
    assert!(what.ends_with("columns that the shipped table has not: region"), "{what}");
    assert!(mend.starts_with("make the table yourself"), "{mend}");
    let (_, mend) = absent(&outbox, &["sales.outbox"]);
    assert!(mend.starts_with("if sales.outbox is meant: table = "), "{mend}");
    assert!(mend.ends_with("then walrelay init"), "{mend}");
    outbox.library = Some("marten".to_owned());
    assert!(absent(&outbox, &[]).1.starts_with("let marten make its table"));
}

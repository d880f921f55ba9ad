use serde_json::json;

use super::*;
use crate::base::template::Template;
use crate::outbox::settings::Preset;

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
    assert_eq!(
        told[0],
        "public.outbox has no column kimd, which columns.type names; it has id, aggregatetype, \
         aggregateid, payload, kind; name column \"kind\" instead, as columns.type of [[source.outbox]]"
    );
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
    assert_eq!(
        fault.mend,
        "name column \"payload\" instead, in columns or route of [[source.outbox]]"
    );
}

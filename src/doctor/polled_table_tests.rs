use serde_json::{Value, json};

use super::*;

/// Facts of a table with one column.
fn facts(name: &str, of_column: Value) -> PolledTableFacts {
    let mut column = json!({
        "name": name, "type_oid": 1043, "base_oid": 1043, "type_sql": "character varying",
        "category": "S", "not_null": true, "default": null, "own_equality": null, "length_max": null
    });
    for (key, value) in of_column.as_object().unwrap() {
        column[key] = value.clone();
    }
    serde_json::from_value(json!({
        "oid": 1, "kind": "r", "standby": false, "role": "walrelay", "may_use_schema": true,
        "may_select": true, "may_update": true, "may_delete": true, "row_policies": null,
        "version": "17.1", "encoding": "UTF8", "columns": [column], "indexes": []
    }))
    .unwrap()
}

#[test]
fn a_column_that_is_too_short_for_a_claim_is_warned_of() {
    let (outbox, polling) = (OutboxTable::default(), PollingSettings::default());
    let found = |length: usize| {
        let facts = &facts("locked_by", json!({ "length_max": length }));
        short_claim(&PolledTable { facts, outbox: &outbox, polling: &polling })
    };
    let own = claim_name(&process_name(), 0).chars().count();
    for (length, here) in
        [(own - 1, format!(", and has {own} on this machine")), (own, String::new())]
    {
        let warning = found(length).unwrap();
        let text = format!(
            "locked_by takes {length} characters: the name of a claim (host, process, number) may have 110{here}; ALTER TABLE"
        );
        assert!(warning.is_warning() && warning.text.contains(&text), "{warning:?}");
    }
    assert_eq!(found(CLAIM_CHARS), None);
}

#[test]
fn an_index_serves_rows_that_are_read_in_order_only_if_it_begins_with_their_order() {
    let (outbox, polling) = (OutboxTable::default(), PollingSettings::default());
    let id = outbox.columns.id.as_str();
    // GIVEN the indexes of the shipped table
    let shipped = [
        (None, id),
        (Some("(status = 'pending'::text)"), id),
        (Some("(status = 'in_progress'::text)"), "locked_by"),
        (Some("((status = 'pending'::text) AND (next_retry_at IS NOT NULL))"), "next_retry_at"),
        (Some("(status = 'failed'::text)"), "failed_at"),
        (Some("(status = 'published'::text)"), "created_at"),
    ];
    let missing = |indexes: &[(Option<&str>, &str)], order: &str| -> Vec<String> {
        let mut facts = facts("status", json!({}));
        facts.indexes.extend(indexes.iter().map(|(condition, leads)| PolledIndex {
            condition: condition.map(str::to_owned),
            leads: Some((*leads).to_owned()),
        }));
        let mut polling = polling.clone();
        polling.columns.order = order.to_owned();
        let table = PolledTable { facts: &facts, outbox: &outbox, polling: &polling };
        missing_indexes(&table).into_iter().map(|found| found.text).collect()
    };
    assert_eq!(missing(&shipped, id), [""; 0]);
    // WHEN the order is that of another column THEN the index on pending rows has not that order
    let told = missing(&shipped, "created_at");
    let words = "no partial index on \"created_at\" for \"status\" = 'pending': every claim reads \
        the whole table, or all rows with this status; CREATE INDEX CONCURRENTLY ON";
    assert!(told.len() == 1 && told[0].starts_with(words), "{told:?}");
    assert!(told[0].ends_with("(\"created_at\") WHERE \"status\" = 'pending';"), "{told:?}");
    // WHEN old published rows are found by another column THEN that is told, too
    let mut others = shipped;
    others[5].1 = "locked_at";
    let told = missing(&others, id);
    assert!(told.len() == 1 && told[0].contains("every clean-up reads"), "{told:?}");
    // WHEN rows that are read in no order have an index on another column THEN it serves
    others = shipped;
    (others[2].1, others[4].1) = ("locked_at", "created_at");
    assert_eq!(missing(&others, id), [""; 0]);
}

#[test]
fn a_table_whose_new_rows_are_not_pending_is_not_moved_to_a_slot() {
    let outbox = OutboxTable::default();
    let mut polling = PollingSettings::default();
    polling.status_values.pending = "NEW".to_owned();
    let found = |default: Option<&str>| {
        let facts = &facts("status", json!({ "default": default }));
        let table = PolledTable { facts, outbox: &outbox, polling: &polling };
        (other_default(&table), unpolled_default(&table))
    };
    let (fault, warning) = found(Some("'DRAFT'::app.state"));
    let fault = fault.unwrap();
    assert_eq!(fault.code, "table.status-default");
    assert!(fault.what.contains("'DRAFT'::app.state") && fault.what.contains("'NEW'"), "{fault}");
    assert!(fault.mend.contains("an UPDATE is none"), "{fault}");
    assert!(fault.mend.ends_with("ALTER COLUMN \"status\" SET DEFAULT 'NEW';"), "{fault}");
    assert!(warning.unwrap().text.ends_with("SET DEFAULT 'NEW';"));
    assert_eq!(found(Some("'NEW'::app.state")), (None, None));
    // WHEN there is none THEN the writers say the status
    let (fault, warning) = found(None);
    assert!(fault.is_none() && warning.is_some());
}

use serde_json::json;

use super::*;
use crate::base::template::Template;

fn facts(columns: &[(&str, &str)]) -> PolledTableFacts {
    let columns: Vec<_> = columns
        .iter()
        .map(|(name, kind)| {
            json!({ "name": name, "type_oid": 25, "base_oid": 25, "type_sql": kind, "category": "S", "not_null": true,
                    "default": null, "own_equality": null, "length_max": null })
        })
        .collect();
    serde_json::from_value(json!({
        "oid": 1, "kind": "r", "standby": false, "role": "relay", "may_use_schema": true, "may_select": true,
        "may_update": false, "may_delete": false, "version": "17", "encoding": "UTF8", "columns": columns, "indexes": [],
    }))
    .unwrap()
}

fn request(wanted: Wanted) -> FindRequest {
    let within = Duration::from_secs(1);
    FindRequest { wanted, since_unix_us: MARGIN_US, since_is_given: false, within }
}

fn sql(outbox: &OutboxTable, facts: &PolledTableFacts, wanted: Wanted) -> Result<String, String> {
    RowQuery { outbox, polling: None, facts }.sql(&request(wanted))
}

#[test]
fn an_id_is_compared_with_the_column_and_never_cast() {
    let table = facts(&[("id", "uuid"), ("aggregateid", "text"), ("payload", "jsonb")]);
    let outbox = OutboxTable::default();
    let sql = sql(&outbox, &table, Wanted::Id("it's".to_owned())).unwrap();
    let end =
        "FROM \"public\".\"outbox\" t WHERE t.\"id\" OPERATOR(pg_catalog.=) 'it''s' LIMIT 101";
    assert!(sql.ends_with(end), "{sql}");
    assert!(!sql.contains("payload"), "a payload is never read: {sql}");
    // A column that is not there is not asked for.
    assert!(!sql.contains("traceparent") && !sql.contains("created_at"), "{sql}");
}

#[test]
fn a_role_is_told_the_rights_that_it_lacks_and_no_other() {
    let outbox = OutboxTable { schema: "Sales Eu".to_owned(), ..OutboxTable::default() };
    let grants = |may_use_schema, may_select| {
        let facts = PolledTableFacts { may_use_schema, may_select, ..facts(&[]) };
        RowQuery { outbox: &outbox, polling: None, facts: &facts }.missing_grants()
    };
    let on_schema = "GRANT USAGE ON SCHEMA \"Sales Eu\" TO \"relay\";";
    let on_table = "GRANT SELECT ON \"Sales Eu\".\"outbox\" TO \"relay\";";
    assert_eq!(grants(true, true), None);
    assert_eq!(grants(true, false).as_deref(), Some(on_table));
    assert_eq!(grants(false, true).as_deref(), Some(on_schema));
    assert_eq!(grants(false, false), Some(format!("{on_schema} {on_table}")));
}

#[test]
fn the_newest_rows_of_a_key_are_read() {
    let table = facts(&[
        ("id", "uuid"),
        ("aggregateid", "text"),
        ("created_at", "timestamp with time zone"),
    ]);
    let mut outbox = OutboxTable::default();
    let key = || Wanted::Key("k".to_owned());
    let text = sql(&outbox, &table, key()).unwrap();
    assert!(text.contains("t.\"aggregateid\" OPERATOR(pg_catalog.=) 'k' AND"), "{text}");
    assert!(text.contains("'1970-01-01T00:00:00.000000Z'::pg_catalog.timestamptz"), "{text}");
    // THEN those without a time are among them, behind the others
    let end = "OR t.\"created_at\" IS NULL) ORDER BY t.\"created_at\" DESC NULLS LAST LIMIT 101";
    assert!(text.ends_with(end), "{text}");
    outbox.route.key = Some(Template::parse("${aggregateid}-${id}").unwrap());
    let text = sql(&outbox, &table, key()).unwrap();
    let hyphen = format!(" OPERATOR(pg_catalog.||) {} OPERATOR", text_bytes_sql("'-'"));
    for part in ["THEN pg_catalog.concat(t.\"aggregateid\") END, ", &hyphen] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    outbox.route.key = Some(Template::parse("${id.tenant.name}").unwrap());
    let text = sql(&outbox, &table, key()).unwrap();
    let member = "END OPERATOR(pg_catalog.#>>) ARRAY['tenant', 'name']::pg_catalog.text[])";
    assert!(text.contains(member), "{text}");
    outbox.route.key = Some(Template::column("tenant"));
    assert_eq!(sql(&outbox, &table, key()).unwrap_err(), "the table has no column tenant");
}

use serde_json::{Value, from_value, json};

use super::*;

fn publication(all_tables: bool, part: &str, value: Value) -> PublicationFacts {
    let mut facts = json!({
        "all_tables": all_tables, "insert": true, "update": false, "delete": false,
        "truncate": false, "via_root": true, "owner": "o",
    });
    facts[part] = value;
    from_value(facts).unwrap()
}

#[test]
fn all_tables_do_not_cover_one_that_they_except_and_a_clause_that_was_cut_is_not_written() {
    let is_covered = |publication: &PublicationFacts, name: &str, kind: &str| {
        let table = json!({
            "schema": "public", "name": name, "schema_exists": true, "kind": kind, "columns": [],
            "has_update_trigger": false, "similar": [],
        });
        publication.covers(&from_value::<TableFacts>(table).unwrap())
    };
    // GIVEN one for all tables of a schema
    let of_schema = publication(false, "tables", json!([{"schema": "public", "name": "outbox"}]));
    assert!(is_covered(&of_schema, "outbox", "p"));
    assert!(["p", "r"].into_iter().all(|kind| !is_covered(&of_schema, "other", kind)));
    // GIVEN one for all tables, of which the first is an outbox
    let excepted =
        |n: usize| json!({"schema": "public", "name": format!("t{n}"), "is_outbox": n == 0});
    let of = |count: usize| publication(true, "excepted", (0..count).map(excepted).collect());
    assert!(is_covered(&of(1), "outbox", "p") && !is_covered(&of(1), "t0", "p"));
    for (count, sql) in [
        (1, "SET ALL TABLES;"),
        (2, "SET ALL TABLES EXCEPT (TABLE \"public\".\"t1\");"),
        (EXCEPTED_MAX, "SET ALL TABLES EXCEPT (TABLE …);"),
    ] {
        assert_eq!(of(count).except_sql("all"), format!("ALTER PUBLICATION \"all\" {sql}"));
    }
}

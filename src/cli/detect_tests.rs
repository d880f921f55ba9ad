//! Tests of the sections that are printed for a table; the catalog is asked by
//! `tests/features/libraries.rs`.

use super::*;

fn found(schema: &str, table: &str, name: &str) -> FoundTable {
    FoundTable { schema: schema.into(), table: table.into(), name: name.into() }
}

#[test]
fn a_section_is_printed_for_each_table_and_a_comment_where_there_can_be_none() {
    let tables = [
        found("public", "outbox", ""),
        found("shop", "outbox_kafka", "tomorrow-one"),
        found("public", "watermill_orders", "watermill"),
        found("w", "wolverine_outgoing_envelopes", "Wolverine"),
        found("a.b", "t", "tomorrow-one"),
    ];
    let expected = "\
# public.outbox has the columns of Debezium's outbox table.
[[source.outbox]]
table = \"public.outbox\"

# shop.outbox_kafka has the columns of tomorrow-one.
[[source.outbox]]
library = \"tomorrow-one\"
table = \"shop.outbox_kafka\"

# public.watermill_orders has the columns of watermill.
# The table has no key: each event has its id as its key, so events have no order among each other.
[[source.outbox]]
library = \"watermill\"
table = \"public.watermill_orders\"

# w.wolverine_outgoing_envelopes is a table of Wolverine and cannot be relayed: the body of a row is an envelope in Wolverine's own binary form.

# \"a.b.t\" has a name that no configuration can write.
";
    assert_eq!(sections(&tables, "app"), expected);
    let none = sections(&[], "app");
    assert!(none.starts_with("# No table of database app"), "{none}");
    assert!(none.ends_with("section \"1. Map the columns\".\n"), "{none}");
    // GIVEN a table that may be an outbox THEN it is named only where none is known
    let likely = found("shop", "messages", LIKELY);
    let named = sections(std::slice::from_ref(&likely), "app");
    assert!(
        named.ends_with("# Tables with some columns of an outbox: \"shop.messages\"\n"),
        "{named}"
    );
    let known = found("public", "outbox", "");
    assert!(!sections(&[known, likely], "app").contains("messages"));
    let values = tables.iter().map(value).collect::<Vec<_>>();
    assert_eq!((&values[0]["library"], &values[0]["unfit"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&values[1]["schema"], &values[1]["library"]),
        (&"shop".into(), &"tomorrow-one".into())
    );
    assert!(values[2]["note"].as_str().unwrap().contains("no key"), "{values:?}");
    assert!(values[3]["unfit"].as_str().unwrap().contains("binary form"), "{values:?}");
    assert!(values[4]["unfit"].is_string(), "{values:?}");
}

#[test]
fn the_section_of_eventuates_table_with_database_ids_names_their_column() {
    // GIVEN the columns by which this table is recognised: those of the library, and dbid
    let wanted = wanted();
    let columns = |name: &str| &wanted.iter().find(|kind| kind.name == name).unwrap().columns;
    let (with_ids, plain) = (columns(DATABASE_IDS), columns("eventuate"));
    assert!(with_ids.contains(&"dbid".to_owned()) && with_ids.len() == plain.len() + 1);
    assert!(plain.iter().all(|column| with_ids.contains(column)));
    // THEN its section is that of the library, with the columns
    let with_ids = found("eventuate", "message", DATABASE_IDS);
    let plain = section(&found("eventuate", "message", "eventuate"));
    assert_eq!(section(&with_ids), plain + "columns = { id = \"dbid\", order = \"dbid\" }\n");
    assert_eq!(value(&with_ids)["library"], "eventuate");
}

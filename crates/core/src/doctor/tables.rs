//! Judges the outbox tables, for the slot and for polling: whether they exist, are tables, and have
//! the configured columns.

use crate::base::error::Fault;
use crate::base::finding::Finding;
use crate::base::stop::TABLE_UNLOGGED;
use crate::base::template::Template;
use crate::base::text::nearest;
use crate::outbox::settings::{NamedColumn, OutboxTable, Route};
use crate::source::faults::{table_missing, table_problem};
use crate::source::publication::{TableFacts, add_order_sql};
use crate::source::quote::quote_table;
use crate::source::shipped_table::table_sql;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadBy {
    Slot,
    Polling,
}

/// For the slot.
pub fn judge(tables: &[TableFacts], outboxes: &[OutboxTable]) -> Vec<Finding> {
    let judge_one = |(table, outbox): (&TableFacts, &OutboxTable)| {
        let mut faults = faults(table, outbox, ReadBy::Slot);
        faults.extend(absent_named(table, outbox));
        if faults.is_empty() {
            let text = format!("table {} has the columns it needs", table.shown());
            let mut found = vec![Finding::ok("table", text)];
            found.extend(moved_rows(table));
            found.extend(inherited_rows(table, outboxes));
            found.extend(without_order(table, outbox));
            return found;
        }
        faults.into_iter().map(Finding::fail).collect()
    };
    tables.iter().zip(outboxes).flat_map(judge_one).collect()
}

/// A table whose rows cannot be published again in order, as after a lost slot.
fn without_order(table: &TableFacts, outbox: &OutboxTable) -> Option<Finding> {
    let shown = table.shown();
    let text = match (outbox.order_column(), add_order_sql(table, outbox)) {
        (Some(_), None) => return None,
        (Some(order), Some(sql)) => format!(
            "table {shown} has no column {order}, so its rows cannot be published again in order, as after a lost slot: {sql} It rewrites the table and locks it meanwhile (ACCESS EXCLUSIVE), and numbers the rows that are there in no certain order; or name another column as columns.order"
        ),
        (None, _) => format!(
            "no column of table {shown} is known by whose order its rows could be published again, as after a lost slot: name one that rises with each INSERT as columns.order"
        ),
    };
    Some(Finding::warn("table.order", text))
}

/// The faults that keep rows from being read as events.
pub fn faults(table: &TableFacts, outbox: &OutboxTable, by: ReadBy) -> Vec<Fault> {
    let Some(kind) = table.kind.as_deref() else { return vec![missing(table, outbox, by)] };
    let mut faults: Vec<Fault> = wrong_kind(table, kind, by).into_iter().collect();
    if by == ReadBy::Slot {
        faults.extend(table.unlogged.iter().map(|(schema, name)| unlogged(table, schema, name)));
    }
    let absent = |name: &&str| table.column(name).is_none();
    let needed = outbox.needed_columns().into_iter();
    faults.extend(needed.filter(absent).map(|name| column_needed(table, outbox, name)));
    faults
}

/// Columns that the configuration names and the table does not have, although events can do without them: a
/// running relay publishes events without them, and a start says that the name is wrong.
pub fn absent_named(table: &TableFacts, outbox: &OutboxTable) -> Vec<Fault> {
    let needed = outbox.needed_columns();
    let is_absent = |column: &NamedColumn<'_>| {
        table.kind.is_some()
            && table.column(column.name).is_none()
            && !needed.contains(&column.name)
    };
    let absent = outbox.named_columns().into_iter().filter(is_absent);
    absent.map(|column| column_named(table, outbox, column)).collect()
}

/// The table itself is unlogged, or a partition of it.
fn unlogged(table: &TableFacts, schema: &str, name: &str) -> Fault {
    let shown = table.shown();
    let what = match (schema, name) == (&table.schema, &table.name) {
        true => shown,
        false => format!("{schema}.{name}, a partition of {shown},"),
    };
    table_problem(
        TABLE_UNLOGGED,
        format!("{what} is unlogged: its rows never reach the WAL"),
        format!("ALTER TABLE {} SET LOGGED;", quote_table(schema, name)),
    )
}

/// Postgres decodes an UPDATE that moves a row to another partition as DELETE and INSERT, and marks
/// neither.
fn moved_rows(table: &TableFacts) -> Option<Finding> {
    let is_exposed = table.is_partitioned() && !table.has_update_trigger;
    is_exposed.then(|| {
        let text = format!(
            "table {} is partitioned: an UPDATE that moves a row to another partition publishes it once more, as a new \
             event with the same id, and nothing tells it from an INSERT; a trigger BEFORE UPDATE that raises an error \
             keeps such updates out (docs/postgres.md)",
            table.shown()
        );
        Finding::warn("table.updatable", text)
    })
}

/// Postgres publishes the rows of a table that inherits under the name of that table.
fn inherited_rows(table: &TableFacts, outboxes: &[OutboxTable]) -> Option<Finding> {
    let is_outbox =
        |name: &&String| outboxes.iter().any(|outbox| outbox.to_string() == name.as_str());
    let others: Vec<&str> =
        table.inheriting.iter().filter(|name| !is_outbox(name)).map(String::as_str).collect();
    (!others.is_empty()).then(|| {
        let text = format!(
            "rows that are inserted into {}, which inherit from table {}, are no events: only its own rows and those of partitions \
             are; if they should be, write [[source.outbox]] for each, add it to the publication, or make partitions of them",
            others.join(", "),
            table.shown()
        );
        Finding::warn("table.inherited", text)
    })
}

/// `init` makes no other table for polling.
const SHIPPED: &str = "public.outbox";

fn missing(table: &TableFacts, outbox: &OutboxTable, by: ReadBy) -> Fault {
    let wanted = table.shown();
    let same_name =
        |name: &&String| name.split_once('.').is_some_and(|(_, bare)| bare == table.name);
    let meant = table.similar.iter().find(same_name).map(String::as_str);
    let meant = meant.or_else(|| nearest(&wanted, table.similar.iter().map(String::as_str)));
    // The command that creates it, or why `init` does not.
    let made = match by {
        ReadBy::Slot => table_sql(outbox).map(|_| "walrelay init"),
        ReadBy::Polling if wanted == SHIPPED => Ok("walrelay init, which runs sql/polling.sql"),
        ReadBy::Polling => Ok("a table that fits, starting from sql/polling.sql"),
    };
    let make = match &made {
        Ok(command) => command,
        Err(fault) => fault.mend.as_str(),
    };
    let mend = match meant {
        Some(name) => format!(
            "if {name} is meant: table = \"{name}\" in [[source.outbox]]; to make {wanted}: {make}"
        ),
        None if by == ReadBy::Polling => {
            format!(
                "name the table as table = \"schema.table\" in [[source.outbox]], or make {wanted}: {make}"
            )
        }
        None => make.to_owned(),
    };
    match made {
        Ok(_) => table_missing(wanted, mend),
        Err(fault) => Fault { mend, ..fault },
    }
}

/// Only ordinary and partitioned tables can be read.
fn wrong_kind(table: &TableFacts, kind: &str, by: ReadBy) -> Option<Fault> {
    let is = match kind {
        "r" | "p" => return None,
        "v" => "a view",
        "m" => "a materialized view",
        "f" => "a foreign table",
        _ => "not a table",
    };
    let why = match by {
        ReadBy::Slot => "its rows are not in the WAL of this database",
        ReadBy::Polling => "its rows cannot be claimed",
    };
    Some(table_problem(
        "table.kind",
        format!("{} is {is}: {why}", table.shown()),
        "name the table that is written to as table = \"schema.table\" in [[source.outbox]]",
    ))
}

/// A column without which no event can be made.
fn column_needed(table: &TableFacts, outbox: &OutboxTable, name: &str) -> Fault {
    let keys = needed_by(outbox, name);
    let verb = if keys.len() == 1 { "needs" } else { "need" };
    let shared = match keys.iter().any(|key| key.starts_with("route.")) {
        true => "; a key of [route] applies to each table whose section does not have it",
        false => "",
    };
    // The exchange is a key of the sink.
    let place = |key: &String| match key.starts_with("sink.") {
        true => key.clone(),
        false => format!("{key} of [[source.outbox]]"),
    };
    let keys_of = keys.iter().map(place).collect::<Vec<_>>().join(" and ");
    let keys = keys.join(" and ");
    let otherwise = format!("name a column that exists as {keys_of}{shared}");
    column_missing((table, outbox), name, &format!("{keys} {verb}"), &keys_of, otherwise)
}

/// The keys of the configuration that need a column.
fn needed_by(outbox: &OutboxTable, column: &str) -> Vec<String> {
    let OutboxTable { columns, route, .. } = outbox;
    let Route { topic, key, headers, envelope, partition, exchange, exchange_key, .. } = route;
    let has = |template: &Template| template.columns().any(|name| name == column);
    let single = [
        (exchange_key.as_str(), exchange.as_ref().is_some_and(has)),
        ("route.topic", has(topic)),
        ("route.key", key.as_ref().is_some_and(has)),
        ("route.partition", partition.as_deref() == Some(column)),
        ("columns.id", columns.id == column),
        ("columns.key", key.is_none() && columns.key == column),
        ("columns.payload", columns.payload == column),
    ];
    let single = single.into_iter().filter(|(_, needs)| *needs).map(|(key, _)| key.to_owned());
    let headers = headers.iter().map(|(name, it)| (format!("route.headers.{name}"), it));
    let envelope = envelope.iter().map(|(name, it)| (format!("route.envelope.{name}"), it));
    let members = headers.chain(envelope).filter(|(_, it)| has(it)).map(|(key, _)| key);
    single.chain(members).collect()
}

/// A column that the configuration names although events can do without it.
fn column_named(
    table: &TableFacts,
    outbox: &OutboxTable,
    NamedColumn { key, name }: NamedColumn<'_>,
) -> Fault {
    let key_of = format!("{key} of [[source.outbox]]");
    let otherwise = format!(
        "map the part to a column that exists, or remove {key} from [[source.outbox]]: then events do without it"
    );
    column_missing((table, outbox), name, &format!("{key} names"), &key_of, otherwise)
}

/// `why` is the key and what it does with the column; `otherwise` is the help where no free column has a similar name.
fn column_missing(
    (table, outbox): (&TableFacts, &OutboxTable),
    name: &str,
    why: &str,
    key: &str,
    otherwise: String,
) -> Fault {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let mut used = outbox.needed_columns();
    used.extend(outbox.named_columns().iter().map(|column| column.name));
    let free = names.iter().copied().filter(|name| !used.contains(name));
    let mend = match nearest(name, free) {
        Some(near) => format!("name column \"{near}\" instead, as {key}"),
        None => otherwise,
    };
    let (shown, has) = (table.shown(), names.join(", "));
    table_problem(
        "table.column-missing",
        format!("{shown} has no column {name}, which {why}; it has {has}"),
        format!(
            "{mend}; with a slot, rows that were written before a column was renamed have its old name: docs/postgres.md, \"Renaming a column\""
        ),
    )
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;

//! The outbox tables: are they there, is what is written to them in the WAL, and do they have the
//! columns that the configuration names?

use super::facts::TableFacts;
use super::quote::{nearest, quote_ident, quote_table};
use super::settings::SourceSettings;
use crate::base::error::{Exit, Fault};
use crate::doctor::finding::Finding;
use crate::outbox::settings::OutboxTable;

/// Columns without which no event can be made, each once: id, payload and what the route names.
#[must_use]
pub fn needed_columns(outbox: &OutboxTable) -> Vec<&str> {
    let route = &outbox.route;
    let routed = route.topic.columns().chain(route.key.columns());
    let headers = route.headers.iter().flat_map(|(_, template)| template.columns());
    let mut needed: Vec<&str> = Vec::new();
    for column in [outbox.columns.id.as_str(), outbox.columns.payload.as_str()]
        .into_iter()
        .chain(routed)
        .chain(headers)
        .chain(route.exchange.iter().flat_map(|template| template.columns()))
        .chain(route.partition.as_deref())
    {
        if !needed.contains(&column) {
            needed.push(column);
        }
    }
    needed
}

pub(crate) fn judge(tables: &[TableFacts], settings: &SourceSettings) -> Vec<Finding> {
    tables.iter().zip(&settings.outboxes).flat_map(|(table, outbox)| one(table, outbox)).collect()
}

fn one(table: &TableFacts, outbox: &OutboxTable) -> Vec<Finding> {
    let Some(kind) = table.kind.as_deref() else {
        return vec![Finding::fail(missing(table))];
    };
    let mut faults: Vec<Fault> =
        [wrong_kind(table, kind), not_logged(table)].into_iter().flatten().collect();
    let absent = |name: &&str| !table.columns.iter().any(|column| column.name == *name);
    faults.extend(
        needed_columns(outbox).into_iter().filter(absent).map(|name| column_missing(table, name)),
    );
    if faults.is_empty() {
        let text = format!("table {} has the columns it needs", shown(table));
        return vec![Finding::ok("table", text)];
    }
    faults.into_iter().map(Finding::fail).collect()
}

/// `schema.table` for people.
pub(super) fn shown(table: &TableFacts) -> String {
    format!("{}.{}", table.schema, table.name)
}

fn missing(table: &TableFacts) -> Fault {
    let wanted = shown(table);
    let meant = table
        .similar
        .iter()
        .find(|name| name.split_once('.').is_some_and(|(_, bare)| bare == table.name))
        .map(String::as_str)
        .or_else(|| nearest(&wanted, table.similar.iter().map(String::as_str)));
    let mend = match meant {
        Some(name) => format!(
            "if {name} is meant: table = \"{name}\" in [[source.outbox]]; to make {wanted}: \
             walrelay init"
        ),
        None => "walrelay init".to_owned(),
    };
    Fault::new(
        Exit::Source,
        "table.missing",
        format!("outbox table {wanted} does not exist"),
        "source.outbox",
        mend,
    )
}

/// Only ordinary and partitioned tables have rows of their own in the WAL.
fn wrong_kind(table: &TableFacts, kind: &str) -> Option<Fault> {
    let is = match kind {
        "r" | "p" => return None,
        "v" => "a view",
        "m" => "a materialized view",
        "f" => "a foreign table",
        _ => "not a table",
    };
    Some(Fault::new(
        Exit::Source,
        "table.kind",
        format!("{} is {is}: its rows are not in the WAL of this database", shown(table)),
        "source.outbox",
        "name the table that is written to as table = \"schema.table\" in [[source.outbox]]",
    ))
}

fn not_logged(table: &TableFacts) -> Option<Fault> {
    (table.persistence.as_deref() == Some("u")).then(|| {
        Fault::new(
            Exit::Source,
            "table.unlogged",
            format!("{} is unlogged: its rows never reach the WAL", shown(table)),
            "source.outbox",
            format!("ALTER TABLE {} SET LOGGED;", quote_table(&table.schema, &table.name)),
        )
    })
}

fn column_missing(table: &TableFacts, name: &str) -> Fault {
    let names = || table.columns.iter().map(|column| column.name.as_str());
    let has = names().collect::<Vec<_>>().join(", ");
    let mend = match nearest(name, names()) {
        Some(near) => format!(
            "name column \"{near}\" instead, in columns or route of [[source.outbox]]; or ALTER \
             TABLE {} RENAME COLUMN {} TO {};",
            quote_table(&table.schema, &table.name),
            quote_ident(near),
            quote_ident(name),
        ),
        None => "map the part to a column that exists: columns = { … } or route = { … } of \
                 [[source.outbox]]"
            .to_owned(),
    };
    Fault::new(
        Exit::Source,
        "table.column-missing",
        format!("{} has no column {name}; it has {has}", shown(table)),
        "source.outbox",
        mend,
    )
}

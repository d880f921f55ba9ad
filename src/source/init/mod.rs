//! Makes what is missing, and only that.
//!
//! Order: role, schema, table, publication, slot. The slot is last because it must never be older
//! than the publication. What exists and is wrong is left alone: `check` says how to mend it, and
//! a person decides. Every step can be repeated.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::facts::{RoleFacts, TableFacts};
use super::publication::{add_table_sql, create_sql};
use super::quote::{quote_ident, quote_table};
use super::settings::SourceSettings;
use super::slot;
use super::table::needed_columns;
use crate::base::error::{Exit, Fault};
use crate::doctor::source::server::{APPLICATION_ROLE, close_messages_sql};
use crate::doctor::source::{Report, query_fault};
use crate::outbox::settings::OutboxTable;

/// One thing to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it makes, for people.
    pub what: String,
    /// The statement.
    pub sql: String,
    /// Only told: somebody else must run it.
    pub hint: bool,
}

impl Step {
    fn new(what: impl Into<String>, sql: impl Into<String>) -> Step {
        Step { what: what.into(), sql: sql.into(), hint: false }
    }
}

/// What is missing. `relay` is the role that `walrelay run` logs in as. Fails when a missing table
/// would need columns that only its designer knows.
pub fn plan(
    report: &Report,
    settings: &SourceSettings,
    relay: &RoleFacts,
) -> Result<Vec<Step>, Fault> {
    let facts = &report.facts;
    let mut steps = Vec::new();
    if !relay.replication {
        let sql = format!("ALTER ROLE {} REPLICATION;", quote_ident(&relay.name));
        let what = format!("let role {} replicate", relay.name);
        // Only a superuser may give it, and who is one should say so knowingly.
        steps.push(Step { what, sql, hint: !facts.server.role.superuser });
    }
    if let Some(sql) = settings.messages.as_ref().and(close_messages_sql(facts)) {
        let what = "let nobody but the application emit messages".to_owned();
        steps.push(Step { what, sql, hint: true });
    }
    for (table, outbox) in facts.tables.iter().zip(&settings.outboxes) {
        if table.kind.is_none() {
            steps.extend(table_steps(table, outbox)?);
        }
    }
    steps.extend(publication_steps(report, settings));
    if facts.slot.is_none() {
        steps.push(Step::new(
            format!("make slot {} (waits for open transactions to end)", settings.slot),
            slot::create_if_missing_sql(&settings.slot),
        ));
    }
    Ok(steps)
}

fn publication_steps(report: &Report, settings: &SourceSettings) -> Vec<Step> {
    let name = &settings.publication;
    let Some(publication) = &report.facts.publication else {
        let what = format!("make publication {name}: inserts only");
        return vec![Step::new(what, create_sql(settings))];
    };
    let absent = |table: &&TableFacts| {
        !publication.all_tables
            && table.member_oid.is_none()
            && !publication.tables.iter().any(|entry| {
                (&entry.schema, &entry.name) == (&table.schema, &table.name)
                    || (entry.root_schema.as_ref(), entry.root_name.as_ref())
                        == (Some(&table.schema), Some(&table.name))
            })
    };
    let add = |table: &TableFacts| {
        let what = format!("add {}.{} to publication {name}", table.schema, table.name);
        Step::new(what, add_table_sql(name, table))
    };
    report.facts.tables.iter().filter(absent).map(add).collect()
}

fn table_steps(table: &TableFacts, outbox: &OutboxTable) -> Result<Vec<Step>, Fault> {
    let mut steps = Vec::new();
    if !table.schema_exists {
        let sql = format!("CREATE SCHEMA IF NOT EXISTS {};", quote_ident(&table.schema));
        steps.push(Step::new(format!("make schema {}", table.schema), sql));
    }
    let what = format!("make outbox table {}.{}", outbox.schema, outbox.table);
    steps.push(Step::new(what, table_sql(outbox)?));
    Ok(steps)
}

/// The shipped outbox table under the configured names.
pub fn table_sql(outbox: &OutboxTable) -> Result<String, Fault> {
    let names = &outbox.columns;
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for (name, definition) in [
        (names.id.as_str(), "uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid()"),
        (names.payload.as_str(), "jsonb"),
        (names.key.as_str(), "text NOT NULL"),
        (names.event_type.as_str(), "text NOT NULL"),
        ("aggregatetype", "text NOT NULL"),
        (names.headers.as_str(), "jsonb"),
        (names.traceparent.as_str(), "text"),
        ("created_at", "timestamptz NOT NULL DEFAULT pg_catalog.now()"),
    ] {
        // One column may play two parts, e.g. the id as the ordering key.
        if columns.iter().all(|(taken, _)| *taken != name) {
            columns.push((name, definition));
        }
    }
    let unknown: Vec<&str> = needed_columns(outbox)
        .into_iter()
        .filter(|name| columns.iter().all(|(known, _)| known != name))
        .collect();
    let place = quote_table(&outbox.schema, &outbox.table);
    if !unknown.is_empty() {
        return Err(Fault::new(
            Exit::Source,
            "table.missing",
            format!(
                "outbox table {}.{} does not exist, and the configuration names columns that the \
                 shipped table has not: {}",
                outbox.schema,
                outbox.table,
                unknown.join(", ")
            ),
            "source.outbox",
            format!(
                "make the table yourself, starting from sql/outbox.sql (CREATE TABLE {place} …), \
                 then walrelay init"
            ),
        ));
    }
    columns.sort_by_key(|(name, _)| shipped_order(name, outbox));
    let lines: Vec<String> = columns
        .iter()
        .map(|(name, definition)| format!("    {} {definition}", quote_ident(name)))
        .collect();
    Ok(format!("CREATE TABLE IF NOT EXISTS {place} (\n{}\n);", lines.join(",\n")))
}

/// Columns in the order in which people read an event: what it is about, then what it says.
fn shipped_order(name: &str, outbox: &OutboxTable) -> usize {
    let names = &outbox.columns;
    let order = [
        names.id.as_str(),
        "aggregatetype",
        &names.key,
        &names.event_type,
        &names.payload,
        &names.headers,
        &names.traceparent,
    ];
    order.iter().position(|known| *known == name).unwrap_or(order.len())
}

/// The steps as a script for someone who may run it.
#[must_use]
pub fn script(steps: &[Step], settings: &SourceSettings) -> String {
    let mut text = format!(
        "-- What walrelay needs in database {} and does not find there.\n\
         -- Run it with psql as a role that owns the outbox table, may CREATE in this database\n\
         -- and has REPLICATION (or as a superuser). The slot comes last on purpose: it must not\n\
         -- be older than the publication. Do not wrap it in a transaction.\n",
        settings.connection.dbname
    );
    if steps.is_empty() {
        text.push_str("\n-- Nothing is missing.\n");
    }
    for step in steps {
        let note = if step.hint { " (as a superuser)" } else { "" };
        let mut sql = repeatable(&step.sql);
        // What only a person can fill in runs by nobody's mistake.
        if sql.contains(APPLICATION_ROLE) {
            sql.insert_str(0, "-- ");
        }
        text.push_str(&format!("\n-- {}{note}\n{sql}\n", step.what.replace('\n', " ")));
    }
    text
}

/// A script that stopped half way is run again from its top, and publications have no
/// `IF NOT EXISTS`.
fn repeatable(sql: &str) -> String {
    if !sql.contains(" PUBLICATION ") {
        return sql.to_owned();
    }
    format!("DO $walrelay$ BEGIN {sql} EXCEPTION WHEN duplicate_object THEN NULL; END $walrelay$;")
}

/// Is it the slot that this step makes?
#[must_use]
pub fn makes_slot(step: &Step) -> bool {
    step.sql.contains("pg_create_logical_replication_slot")
}

/// Runs the steps in order, telling each before it starts. Hints are told and left.
pub async fn run(
    client: &Client,
    steps: &[Step],
    mut tell: impl FnMut(&Step),
) -> Result<(), Fault> {
    for step in steps {
        tell(step);
        if step.hint {
            continue;
        }
        match client.batch_execute(&step.sql).await {
            Ok(()) => {}
            // Someone else made it in the meantime, which is what was wanted.
            Err(e) if is_there_already(&e) => {}
            Err(e) => return Err(refused(&e, step, &slot::existing(client).await)),
        }
    }
    Ok(())
}

fn is_there_already(error: &tokio_postgres::Error) -> bool {
    const THERE: [SqlState; 3] =
        [SqlState::DUPLICATE_OBJECT, SqlState::DUPLICATE_TABLE, SqlState::UNIQUE_VIOLATION];
    error.code().is_some_and(|code| THERE.contains(code))
}

/// Why a step failed, and who could do it.
fn refused(error: &tokio_postgres::Error, step: &Step, slots: &[String]) -> Fault {
    let is_slot = makes_slot(step);
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return if is_slot {
            slot::slot_fault(error, &step.what, slots)
        } else {
            query_fault(error, &format!("trying to {}", step.what))
        };
    }
    let message = error.as_db_error().map_or("permission denied", |e| e.message());
    let who = if is_slot {
        "a role with REPLICATION (ALTER ROLE … REPLICATION;) or a superuser"
    } else if step.sql.starts_with("ALTER ROLE") {
        "a superuser"
    } else if step.sql.contains("PUBLICATION") {
        "the owner of the tables who may also CREATE in the database (GRANT CREATE ON DATABASE … \
         TO …;), or a superuser"
    } else if step.sql.starts_with("CREATE SCHEMA") {
        "a role that may CREATE in the database (GRANT CREATE ON DATABASE … TO …;)"
    } else {
        "a role that may CREATE in the schema (GRANT CREATE ON SCHEMA … TO …;)"
    };
    // Whoever owns the tables need not be whoever reads the slot: the other role goes on from here.
    let rest = if is_slot {
        "or run walrelay init again, with that role in source.url: what is made already stays"
    } else {
        "walrelay init --sql prints all that is missing"
    };
    Fault::new(
        Exit::Source,
        "init.permission",
        format!("this role may not {}: {message}", step.what),
        "",
        format!("let {who} run it:\n{}\n{rest}", step.sql),
    )
}

#[cfg(test)]
mod tests;

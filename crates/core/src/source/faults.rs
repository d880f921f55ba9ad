//! Faults of the source that several commands and the relay report.

use super::publication::{KNOWS_ROW_FILTERS, create_sql};
use super::quote::{quote_ident, quote_literal, quote_table};
use super::settings::{PostgresHost, SourceSettings};
use crate::base::error::{Exit, Fault};
use crate::outbox::settings::OutboxTable;

/// The code of a fault: SQL and the stream come from two servers.
pub const TWO_SERVERS: &str = "source.two-servers";

/// The fault of two connections to different servers: the facts of one are not true of the other,
/// so no WAL is read. `sql` and `stream` are where the two connections lead, if that is known.
pub fn two_servers(
    settings: &SourceSettings,
    sql: &PostgresHost,
    stream: Option<&PostgresHost>,
) -> Fault {
    let stream = stream.map_or_else(|| "elsewhere".to_owned(), |host| format!("to {host}"));
    Fault::new(
        Exit::Source,
        TWO_SERVERS,
        format!(
            "the SQL connection to {sql} and the replication connection {stream} have reached two servers: \
             their system identifiers, timelines, times of their start or walsenders differ"
        ),
        format!("source.url, slot {}", settings.slot),
        "find out which server is the primary, and see that source.url leads to that one only: a virtual address that \
         has just moved, a load balancer, or two primaries; on each: SELECT pg_catalog.pg_postmaster_start_time(), \
         system_identifier FROM pg_catalog.pg_control_system(); SELECT active_pid FROM pg_catalog.pg_replication_slots;",
    )
}

/// The commands that replace a slot that cannot be used any more.
pub fn new_slot_commands(slot: &str) -> String {
    format!(
        "walrelay slot drop {slot} && walrelay slot create (with --failover if walrelay slot show says before that the old one has it)"
    )
}

pub fn slot_problem(code: &'static str, what: String, mend: impl Into<String>) -> Fault {
    Fault::new(Exit::Slot, code, what, "source.slot", mend)
}

pub fn slot_missing(name: &str) -> Fault {
    slot_problem(
        "slot.missing",
        format!("replication slot {name} does not exist"),
        "walrelay init (or, once the publication exists: walrelay slot create). If the slot was \
         there before, first stop jobs that delete outbox rows: events written since it vanished are \
         not in the new one, publish them by hand (docs/operations.md, \"A lost slot\")",
    )
}

pub fn slot_lost(slot: &str, reason: &str, confirmed: &dyn std::fmt::Display) -> Fault {
    let (cause, prevention) = match reason {
        "idle_timeout" => (
            format!(
                "no relay had read it for longer than idle_replication_slot_timeout, and Postgres no longer keeps the WAL after {confirmed}"
            ),
            "keep a relay running, and let the setting be longer than one may be away (0 is without limit): ALTER SYSTEM \
             SET idle_replication_slot_timeout = 0; SELECT pg_catalog.pg_reload_conf();",
        ),
        _ => (
            format!("Postgres removed WAL after {confirmed} that it still needed"),
            "raise max_slot_wal_keep_size and alarm on the WAL that is still safe (config/alerts.yml)",
        ),
    };
    slot_problem(
        "slot.lost",
        format!("slot {slot} is lost ({reason}): {cause}"),
        format!(
            "first stop jobs that delete outbox rows; {}, then publish what it never delivered by hand (docs/operations.md, \
             \"A lost slot\"). To keep it from happening again {prevention}",
            new_slot_commands(slot)
        ),
    )
}

pub fn slot_active(name: &str, pid: Option<i32>) -> Fault {
    let (by, end) = match pid {
        Some(pid) => {
            (format!("pid {pid}"), format!("SELECT pg_catalog.pg_terminate_backend({pid});"))
        }
        None => ("another process".to_owned(), end_reader_sql(name)),
    };
    slot_problem(
        "slot.active",
        format!("slot {name} is being read by {by}"),
        format!("stop that relay first; if it is gone without a trace: {end}"),
    )
}

/// The statement that ends the process that reads the slot.
pub fn end_reader_sql(slot: &str) -> String {
    format!(
        "SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots \
         WHERE slot_name = {} AND active;",
        quote_literal(slot)
    )
}

pub fn no_free_slot(slots: &[String], max: Option<u32>) -> Fault {
    let (all, raise) = match max {
        Some(max) => (format!("all {max} replication slots"), (max + 5).to_string()),
        None => ("all replication slots".to_owned(), "…".to_owned()),
    };
    Fault::new(
        Exit::Slot,
        "slot.none-free",
        format!("{all} are in use (max_replication_slots): {}", slots.join(", ")),
        "source.slot",
        format!(
            "drop one that nobody needs: SELECT pg_catalog.pg_drop_replication_slot('NAME'); or ALTER SYSTEM \
             SET max_replication_slots = {raise}; then restart Postgres"
        ),
    )
}

pub fn publication_problem(code: &'static str, what: String, mend: String) -> Fault {
    Fault::new(Exit::Source, code, what, "source.publication", mend)
}

/// `has_slot` says whether there is a slot that a relay could read on from.
pub fn publication_missing(settings: &SourceSettings, has_slot: bool) -> Fault {
    let create = create_sql(settings);
    let mend = if has_slot {
        format!(
            "{create}\nthe slot is older than that publication and cannot read past it\n{}",
            pass_gap(settings)
        )
    } else {
        format!("walrelay init, or as the owner of the tables: {create}")
    };
    let what = format!("publication {} does not exist", settings.publication);
    publication_problem("publication.missing", what, mend)
}

pub fn table_problem(code: &'static str, what: String, mend: impl Into<String>) -> Fault {
    Fault::new(Exit::Source, code, what, "source.outbox", mend)
}

/// `table` is the configured name.
pub fn table_missing(table: impl std::fmt::Display, mend: impl Into<String>) -> Fault {
    table_problem("table.missing", format!("outbox table {table} does not exist"), mend)
}

/// The fault of a configuration that declares a row filter, for a server without them.
pub fn without_filters(outboxes: &[OutboxTable], server_version: u32) -> Option<Fault> {
    let filtered = outboxes.iter().find(|outbox| outbox.filter.is_some())?;
    (server_version < KNOWS_ROW_FILTERS).then(|| {
        Fault::new(
            Exit::Source,
            "source.row-filters",
            format!(
                "publications of PostgreSQL {} have no row filters, and {filtered} declares one with where",
                server_version / 10_000
            ),
            "source.outbox",
            "upgrade to PostgreSQL 15 or later, or remove where: then every row is an event",
        )
    })
}

/// WAL that the slot has not delivered was written while the publication did not exist.
///
/// Changes are decoded with the catalog of their time. Up to 17 Postgres ends the stream at such a
/// change, from 18 on it skips the change with a warning. No retry helps: only a new slot gets past
/// that part of the WAL.
pub fn publication_gap(settings: &SourceSettings, server_said: &str) -> Fault {
    let (slot, publication) = (&settings.slot, &settings.publication);
    Fault::new(
        Exit::Source,
        "publication.missing",
        format!(
            "publication {publication} did not exist when the next part of the WAL was written: \
             the rows of that time cannot be read from slot {slot}: {server_said}"
        ),
        format!("slot {slot}, publication {publication}"),
        format!(
            "if the publication is not there: walrelay init\nthe slot cannot read past this part of \
             the WAL\n{}",
            pass_gap(settings)
        ),
    )
}

/// The end of [`pass_gap`]; a stop that has to be acknowledged ends in another way.
pub const START_AGAIN: &str = "\nthen start again";

/// How to get past that part of the WAL without losing a row.
pub fn pass_gap(settings: &SourceSettings) -> String {
    format!(
        "first stop jobs that delete outbox rows\nmake a new slot: {}\nthen publish by hand \
         what the slot has not delivered (docs/operations.md, \"A lost slot\"): {}{START_AGAIN}",
        new_slot_commands(&settings.slot),
        republish_sql(settings)
    )
}

/// The statements that insert the rows since a time again, with the same ids, in the order in which
/// those of one key were written. Writers wait meanwhile: an event that is not committed yet would come
/// before older ones of its key. Of a table in which that order is not known it says so instead.
pub fn republish_sql(settings: &SourceSettings) -> String {
    settings.outboxes.iter().map(republish_table_sql).collect::<Vec<_>>().join(" ")
}

fn republish_table_sql(outbox: &OutboxTable) -> String {
    let table = quote_table(&outbox.schema, &outbox.table);
    let Some(order) = outbox.order_column().map(quote_ident) else {
        return format!(
            "(no statement for {table}: a time does not say in which order the rows of one key were written, and published in another one the last record of a key would not be its latest event; name a column that does as columns.order in [[source.outbox]])"
        );
    };
    // A table of other names need not have the time.
    let by_order = format!("{order} >= FIRST");
    let (since, otherwise) = match outbox.is_shipped() {
        true => {
            let mut otherwise = format!("if the table has no created_at: WHERE {by_order}; ");
            if outbox.order.is_none() {
                otherwise += &format!(
                    "if it has no {order}, there is no statement: the order of the rows of one key is not known; "
                );
            }
            ("created_at >= 'TIME'".to_owned(), otherwise)
        }
        false => (by_order, String::new()),
    };
    format!(
        "BEGIN; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE; WITH moved AS (DELETE FROM {table} WHERE {since} RETURNING *) INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM moved ORDER BY {order}; COMMIT; /* {otherwise}if the table has generated columns: list the others after INTO and in place of * */"
    )
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;

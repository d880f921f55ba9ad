//! Faults of the source that several commands and the relay report.

use std::str::FromStr;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
pub use walrelay_core::source::faults::*;

use walrelay_base::error::{Exit, Fault};

/// The message of Postgres, without its severity and code.
pub fn message_of(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// For a query that should not fail.
pub fn query_fault(error: &Error, doing: &str) -> Fault {
    let db = error.as_db_error();
    // Aurora refuses its functions for positions in WAL as long as nothing is decoded.
    if let Some(db) = db.filter(|it| is_over_wal_level(it.code().code(), it.message())) {
        return no_logical_wal(db.message());
    }
    let detail = db.map_or_else(
        || error.to_string(),
        |e| format!("{} (SQLSTATE {})", e.message(), e.code().code()),
    );
    Fault::new(
        Exit::Source,
        "source.query",
        format!("Postgres refused a query while {doing}: {detail}"),
        "source.url",
        match error.code() {
            Some(&SqlState::QUERY_CANCELED) => CANCELLED,
            Some(&(SqlState::UNDEFINED_COLUMN | SqlState::UNDEFINED_TABLE)) => {
                "the table or a column is not as configured: walrelay check; if check itself says this, \
                 source.url may not name Postgres itself"
            }
            _ => {
                "try the statement with psql as the same role; a connection pooler in between does not \
                 carry replication, so source.url must name Postgres itself"
            }
        },
    )
}

/// The help for a statement that was cancelled.
const CANCELLED: &str = "run the command again; if nobody has interrupted it, the statement_timeout of the role, of the \
     database or of the server has: ALTER ROLE … SET statement_timeout = 0; with the role that source.url names";

/// The routines of Postgres that refuse for `wal_level`.
const REQUIREMENTS: [&str; 2] = ["CheckLogicalDecodingRequirements", "CheckSlotRequirements"];

/// Whether a statement was refused for `wal_level`.
pub(crate) fn is_over_wal_level(sqlstate: &str, message: &str) -> bool {
    sqlstate == "55000" && message.contains("wal_level")
}

/// How `wal_level` is set.
pub(crate) const SET_WAL_LEVEL: &str = "ALTER SYSTEM SET wal_level = 'logical'; then restart Postgres (a hosted \
     server has a parameter for it, e.g. rds.logical_replication = 1); where that is not possible: source.mode = \"polling\" (docs/polling.md)";

/// How more WAL senders are allowed than `max`, if that is known.
pub(crate) fn raise_wal_senders(max: Option<u32>) -> String {
    let wanted = max.map_or_else(|| "…".to_owned(), |max| max.saturating_add(5).to_string());
    format!(
        "ALTER SYSTEM SET max_wal_senders = {wanted}; then restart Postgres, or end a client listed by \
         SELECT pid, application_name, client_addr FROM pg_catalog.pg_stat_replication;"
    )
}

/// The server does not decode its WAL, as `message` says.
pub fn no_logical_wal(message: &str) -> Fault {
    Fault::new(
        Exit::Source,
        "source.wal-level",
        format!("Postgres cannot decode its WAL: {message}"),
        "source.url",
        format!("{SET_WAL_LEVEL}; on a standby connect to the primary"),
    )
}

/// The fault of a failed statement on slot `name`. `slots` are those of the server.
pub fn slot_refused(error: &Error, name: &str, slots: &[String]) -> Fault {
    let Some(db) = error.as_db_error() else { return query_fault(error, "working on the slot") };
    let message = db.message();
    let source = |code, what, mend| Fault::new(Exit::Source, code, what, "source.slot", mend);
    match *db.code() {
        SqlState::CONFIGURATION_LIMIT_EXCEEDED => no_free_slot(slots, None),
        SqlState::DUPLICATE_OBJECT => slot_exists(name),
        SqlState::UNDEFINED_OBJECT => slot_missing(name),
        SqlState::OBJECT_IN_USE => slot_active(name, last_number(message)),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
            if db.routine().is_some_and(|it| REQUIREMENTS.contains(&it))
                && !message.contains("max_replication_slots") =>
        {
            no_logical_wal(message)
        }
        SqlState::INSUFFICIENT_PRIVILEGE => source(
            "source.role",
            format!("the role may not work on replication slots: {message}"),
            "as a superuser: ALTER ROLE … REPLICATION; with the role that source.url names",
        ),
        SqlState::QUERY_CANCELED => source(
            "source.query",
            format!("interrupted while working on the slot: {message}"),
            CANCELLED,
        ),
        _ => query_fault(error, "working on the slot"),
    }
}

pub fn slot_exists(name: &str) -> Fault {
    slot_problem(
        "slot.exists",
        format!("replication slot {name} exists already"),
        "walrelay slot show; nothing needs to be created",
    )
}

/// The number in a message that may be translated, as in `… is active for PID 4711`.
pub(crate) fn last_number<N: FromStr>(message: &str) -> Option<N> {
    message.rsplit(|c: char| !c.is_ascii_digit()).find(|run| !run.is_empty())?.parse().ok()
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;

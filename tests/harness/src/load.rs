//! Load for an outbox table of the Debezium shape, seeded and repeatable.
//!
//! Three shapes: [`Backlog`] fills quickly before a drain is measured, [`SteadyLoad`] paces single
//! rows for latency, [`ChaosWriters`] write what an exact checker can judge. All payloads are JSON
//! objects with `t` (microseconds, for latency) or `key`, and `seq`, which rises per key in commit
//! order; the truth about what was committed is always the table itself, see
//! [`crate::oracle::Truth`].

mod backlog;
mod chaos;
mod steady;

pub use backlog::Backlog;
pub use chaos::{ChaosReport, ChaosWriters};
pub use steady::SteadyLoad;

use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use crate::kit::{Session, block_on};
use crate::{HarnessError, Result};

/// The keys of a load, unless it has others.
pub const KEYS: u64 = 1_000;
/// The size of a payload; its whole row has about 330 B in the WAL.
pub const PAYLOAD_BYTES: u64 = 230;
/// The bytes of `{"t": <16 digits>, "pad": "<pad>", "seq": <6 digits>}` without its pad.
pub const FRAME_BYTES: u64 = 49;
/// The table of all loads.
const TABLE: &str = "public.outbox";

pub fn create_outbox(url: &str, table: &str) -> Result<()> {
    let table = table_name(table)?;
    let sql = format!(
        "create table if not exists {table} (
            id uuid primary key,
            aggregatetype text not null,
            aggregateid text not null,
            type text not null,
            payload jsonb not null,
            created_at timestamptz not null default clock_timestamp())"
    );
    execute(url, &sql)
}

/// Creates what a relay streams from: first the publication, then the slot, both afresh.
///
/// The order matters: a slot that is older than its publication cannot be decoded past the gap.
pub fn create_slot(url: &str, publication: &str, slot: &str, table: &str) -> Result<()> {
    let (publication, table) = (table_name(publication)?, table_name(table)?);
    block_on(async {
        let session = Session::open(url).await?;
        let sql = format!(
            "drop publication if exists {publication};
             create publication {publication} for table {table} with (publish = 'insert')"
        );
        session.client.batch_execute(&sql).await?;
        let drop_old = "select pg_drop_replication_slot(slot_name) from pg_replication_slots \
                        where slot_name = $1";
        session.client.execute(drop_old, &[&slot]).await?;
        let create = "select pg_create_logical_replication_slot($1, 'pgoutput')";
        session.client.execute(create, &[&slot]).await?;
        Ok(())
    })
}

pub fn execute(url: &str, sql: &str) -> Result<()> {
    block_on(async { Ok(Session::open(url).await?.client.batch_execute(sql).await?) })
}

/// The rows of `sql` as text: columns parted by `|`, a line a row.
pub(crate) fn rows(url: &str, sql: &str) -> Result<String> {
    let messages =
        block_on(async { Ok(Session::open(url).await?.client.simple_query(sql).await?) })?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let line = |row: &SimpleQueryRow| {
        (0..row.len()).map(|i| row.get(i).unwrap_or_default()).collect::<Vec<_>>().join("|")
    };
    Ok(rows.map(line).collect::<Vec<_>>().join("\n"))
}

/// Names go into SQL as they are, so only plain ones are let in.
pub(crate) fn table_name(name: &str) -> Result<&str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
    if !name.is_empty() && name.chars().all(plain) {
        return Ok(name);
    }
    Err(HarnessError::Other(format!("`{name}` is not a plain lower-case SQL name")))
}

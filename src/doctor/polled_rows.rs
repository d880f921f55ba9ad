//! Counts the rows of the polled table that wait, and the others, so that rows which somebody expects to
//! be published and which are not pending are noticed before the relay runs.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::polled_columns::PolledTable;
use crate::source::faults::message_of;
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::sql::read_only;

/// More rows are not counted.
const ROWS_MAX: i64 = 1000;
/// A table without an index for its pending rows may be large.
const LIMITS: &str = "SET LOCAL statement_timeout = '1s'; SET LOCAL lock_timeout = '1s'";

/// How many rows are pending, and how many are not, for people.
pub(super) async fn counted(client: &Client, table: &PolledTable<'_>) -> String {
    match count(client, table).await {
        Ok((pending, others)) => {
            let pending_is = quote_literal(&table.polling.status_values.pending);
            let (pending, others) = (shown(pending), shown(others));
            format!("rows: {pending} with the status {pending_is}, {others} with another one")
        }
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
            "its rows were not counted: that takes more than 1 s".to_owned()
        }
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            "its rows were not counted: another session has locked it".to_owned()
        }
        Err(error) => format!("its rows were not counted: {}", message_of(&error)),
    }
}

/// At most one more than [`ROWS_MAX`] of each.
async fn count(client: &Client, table: &PolledTable<'_>) -> Result<(i64, i64), Error> {
    let PolledTable { facts, polling, .. } = table;
    let name = &polling.columns.status;
    let (quoted, status) = (table.quoted(), quote_ident(name));
    let is_pending = format!(
        "{status} {} {}",
        facts.equality_of(name),
        quote_literal(&polling.status_values.pending)
    );
    let bounded = |condition: &str| {
        format!(
            "(SELECT pg_catalog.count(*) FROM (SELECT FROM {quoted} WHERE {condition} LIMIT {}) r)",
            ROWS_MAX + 1
        )
    };
    let sql = format!(
        "SELECT {}, {}",
        bounded(&is_pending),
        bounded(&format!("({is_pending}) IS NOT TRUE"))
    );
    let row = read_only(client, LIMITS, client.query_one(&sql, &[])).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

fn shown(count: i64) -> String {
    if count > ROWS_MAX { format!("more than {ROWS_MAX}") } else { count.to_string() }
}

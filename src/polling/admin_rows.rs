//! Lists the rows of a polled table, and puts failed rows back, for the commands.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::StreamExt as _;
use serde::Serialize;
use tokio_postgres::Client;

use super::settings::{PollingSettings, StatusValues, WorkColumns};
use super::{statements, table_facts};
use crate::base::error::Fault;
use crate::outbox::settings::OutboxTable;
use crate::source::faults::query_fault;
use crate::source::quote::{quote_ident, quote_literal, quote_table};

/// Selects rows by key, and by ids unless there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowFilter {
    pub(crate) ids: Vec<String>,
    pub(crate) key: Option<String>,
}

/// A row as the commands show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AdminRow {
    /// None where the column allows it: such a row is never claimed.
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) status: String,
    /// Failed attempts.
    #[serde(rename = "retry_count")]
    pub(crate) attempts: i64,
    #[serde(rename = "failure_reason")]
    pub(crate) reason: Option<String>,
    pub(crate) created_at: Option<String>,
    pub(crate) failed_at: Option<String>,
    pub(crate) next_retry_at: Option<String>,
    /// The claim that had it last.
    pub(crate) locked_by: Option<String>,
}

impl AdminRow {
    fn read(row: &tokio_postgres::Row) -> Result<AdminRow, tokio_postgres::Error> {
        Ok(AdminRow {
            id: row.try_get(0)?,
            key: row.try_get(1)?,
            status: row.try_get(2)?,
            attempts: row.try_get(3)?,
            reason: row.try_get(4)?,
            created_at: row.try_get(5)?,
            failed_at: row.try_get(6)?,
            next_retry_at: row.try_get(7)?,
            locked_by: row.try_get(8)?,
        })
    }
}

pub(crate) struct AdminRows<'a> {
    outbox: &'a OutboxTable,
    /// The ordering key, as SQL.
    key: String,
    names: WorkColumns,
    values: StatusValues,
}

impl<'a> AdminRows<'a> {
    pub(crate) async fn open(
        client: &Client,
        outbox: &'a OutboxTable,
        polling: &PollingSettings,
    ) -> Result<AdminRows<'a>, Fault> {
        let facts = table_facts::require(client, outbox).await?;
        Ok(AdminRows {
            outbox,
            key: statements::key(outbox, &facts),
            names: polling.columns.quoted(),
            values: polling.status_values.quoted(),
        })
    }

    /// Passes the rows of one status to `take`, the oldest first, one by one: there may be millions.
    pub(crate) async fn list(
        &self,
        client: &Client,
        status: &str,
        filter: &RowFilter,
        limit: Option<i64>,
        take: &mut dyn FnMut(&AdminRow) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let outbox = self.outbox;
        let WorkColumns {
            status: status_name, retry_count, failure_reason, locked_by, order, ..
        } = &self.names;
        let time = |name: &str| {
            format!(
                "pg_catalog.to_char({name}::pg_catalog.timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
            )
        };
        let sql = format!(
            "SELECT {id}::pg_catalog.text, {key}, {status_name}::pg_catalog.text, coalesce({retry_count}, 0)::bigint, {failure_reason}::pg_catalog.text, \
             {created}, {failed}, {next}, {locked_by}::pg_catalog.text FROM {table} t WHERE {where_} \
             ORDER BY t.{order} LIMIT $1",
            id = quote_ident(&outbox.columns.id),
            key = self.key,
            created = time(&self.names.created_at),
            failed = time(&self.names.failed_at),
            next = time(&self.names.next_retry_at),
            table = quote_table(&outbox.schema, &outbox.table),
            where_ = self.condition(&quote_literal(status), filter),
        );
        let failed = |error| query_fault(&error, "listing rows");
        let rows = client.query_raw(sql.as_str(), [limit]).await.map_err(failed)?;
        let mut rows = pin!(rows);
        while let Some(row) = rows.next().await {
            if !take(&row.and_then(|row| AdminRow::read(&row)).map_err(failed)?)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes failed rows pending again, with all their attempts. Returns how many. A row that was
    /// put back keeps the name of its last claim, so that it stays with polling after a handover.
    pub(crate) async fn put_back(&self, client: &Client, filter: &RowFilter) -> Result<u64, Fault> {
        let WorkColumns {
            status,
            retry_count,
            next_retry_at,
            failed_at,
            failure_reason,
            locked_at,
            locked_by,
            ..
        } = &self.names;
        let StatusValues { pending, failed, .. } = &self.values;
        let table = quote_table(&self.outbox.schema, &self.outbox.table);
        let condition = self.condition(failed, filter);
        // Not the name of its claim, which may write its failure once more after a connection that broke.
        let sql = format!(
            "UPDATE {table} t SET {status} = {pending}, {retry_count} = 0, {next_retry_at} = NULL, {failed_at} = NULL, \
             {failure_reason} = NULL, {locked_at} = NULL, {locked_by} = 'retry' WHERE {condition}"
        );
        let done = client.execute(&sql, &[]).await;
        done.map_err(|error| query_fault(&error, "putting rows back"))
    }

    /// How many rows [`Self::put_back`] would make pending.
    pub(crate) async fn count_failed(
        &self,
        client: &Client,
        filter: &RowFilter,
    ) -> Result<u64, Fault> {
        let table = quote_table(&self.outbox.schema, &self.outbox.table);
        let condition = self.condition(&self.values.failed, filter);
        let sql = format!("SELECT pg_catalog.count(*) FROM {table} t WHERE {condition}");
        let row = client.query_one(&sql, &[]).await;
        let row = row.map_err(|error| query_fault(&error, "counting rows"))?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }

    /// The ids of the filter that [`Self::put_back`] would not find.
    pub(crate) async fn absent_ids(
        &self,
        client: &Client,
        filter: &RowFilter,
    ) -> Result<Vec<String>, Fault> {
        if filter.ids.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {}::pg_catalog.text FROM {} t WHERE {}",
            quote_ident(&self.outbox.columns.id),
            quote_table(&self.outbox.schema, &self.outbox.table),
            self.condition(&self.values.failed, filter)
        );
        let rows = client.query(&sql, &[]).await;
        let rows = rows.map_err(|error| query_fault(&error, "looking for rows"))?;
        let found: BTreeSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let wanted: BTreeSet<&str> = filter.ids.iter().map(String::as_str).collect();
        Ok(wanted.difference(&found).map(|id| (*id).to_owned()).collect())
    }

    fn condition(&self, status: &str, filter: &RowFilter) -> String {
        let mut all = vec![format!("{} = {status}", self.names.status)];
        if !filter.ids.is_empty() {
            let ids: Vec<String> = filter.ids.iter().map(|id| quote_literal(id)).collect();
            let id = quote_ident(&self.outbox.columns.id);
            all.push(format!("{id}::pg_catalog.text IN ({})", ids.join(", ")));
        }
        if let Some(key) = &filter.key {
            all.push(format!("{} = {}", self.key, quote_literal(key)));
        }
        all.join(" AND ")
    }
}

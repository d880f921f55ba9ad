//! Rows as people see them, and failed rows put back.

use serde_json::{Value, json};
use tokio_postgres::Client;

use super::settings::PollingSettings;
use super::statements;
use crate::base::error::Fault;
use crate::outbox::settings::OutboxTable;
use crate::source::faults::query_fault;
use crate::source::quote::{quote_ident, quote_literal, quote_table};

/// Which rows are meant.
#[derive(Clone, Debug, Default)]
pub struct Which {
    /// Only these ids; all when empty.
    pub ids: Vec<String>,
    /// Only of this key.
    pub key: Option<String>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Id.
    pub id: String,
    /// Ordering key.
    pub key: Option<String>,
    /// Status word.
    pub status: String,
    /// Attempts that have failed.
    pub attempts: i64,
    /// Why the last did.
    pub reason: Option<String>,
    /// When it was written.
    pub created_at: Option<String>,
    /// When it was given up.
    pub failed_at: Option<String>,
    /// Not before.
    pub next_retry_at: Option<String>,
    /// Who has claimed it last.
    pub locked_by: Option<String>,
}

impl View {
    /// For scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let View { id, key, status, attempts, reason, created_at, failed_at, .. } = self;
        json!({
            "id": id, "key": key, "status": status, "retry_count": attempts,
            "failure_reason": reason, "created_at": created_at, "failed_at": failed_at,
            "next_retry_at": self.next_retry_at, "locked_by": self.locked_by,
        })
    }
}

/// Names and words of one table.
pub struct Rows<'a> {
    outbox: &'a OutboxTable,
    polling: &'a PollingSettings,
}

impl<'a> Rows<'a> {
    /// Of this table.
    #[must_use]
    pub const fn new(outbox: &'a OutboxTable, polling: &'a PollingSettings) -> Rows<'a> {
        Rows { outbox, polling }
    }

    /// Rows of one status, the oldest first.
    pub async fn list(
        &self,
        client: &Client,
        status: &str,
        which: &Which,
        limit: i64,
    ) -> Result<Vec<View>, Fault> {
        let outbox = self.outbox;
        let names = &self.polling.columns;
        let time = |name: &str| {
            format!(
                "pg_catalog.to_char({}::pg_catalog.timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
                quote_ident(name)
            )
        };
        let sql = format!(
            "SELECT {id}::pg_catalog.text, {key}, {status}::pg_catalog.text, {attempts}::bigint, {reason}::pg_catalog.text, \
             {created}, {failed}, {next}, {by}::pg_catalog.text FROM {table} t WHERE {where_} \
             ORDER BY t.{order} LIMIT $1",
            id = quote_ident(&outbox.columns.id),
            key = statements::key(outbox),
            status = quote_ident(&names.status),
            attempts = quote_ident(&names.retry_count),
            reason = quote_ident(&names.failure_reason),
            created = time(&names.created_at),
            failed = time(&names.failed_at),
            next = time(&names.next_retry_at),
            by = quote_ident(&names.locked_by),
            table = quote_table(&outbox.schema, &outbox.table),
            where_ = self.condition(status, which),
            order = quote_ident(&names.order),
        );
        let rows = client.query(&sql, &[&limit]).await;
        let rows = rows.map_err(|error| query_fault(&error, "listing rows"))?;
        let view = |row: &tokio_postgres::Row| {
            Ok(View {
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
        };
        let views = rows.iter().map(view).collect::<Result<_, tokio_postgres::Error>>();
        views.map_err(|error| query_fault(&error, "listing rows"))
    }

    /// Failed rows are to be published again, with all their attempts. Says how many. A row that
    /// was put back keeps the name of who had it: it stays with polling whatever happens.
    pub async fn put_back(&self, client: &Client, which: &Which) -> Result<u64, Fault> {
        let outbox = self.outbox;
        let (names, words) = (&self.polling.columns, &self.polling.words);
        let sql = format!(
            "UPDATE {table} t SET {status} = {pending}, {attempts} = 0, {next} = NULL, {failed} = NULL, \
             {reason} = NULL, {at} = NULL, {by} = coalesce({by}, 'retry') WHERE {where_}",
            by = quote_ident(&names.locked_by),
            table = quote_table(&outbox.schema, &outbox.table),
            status = quote_ident(&names.status),
            pending = quote_literal(&words.pending),
            attempts = quote_ident(&names.retry_count),
            next = quote_ident(&names.next_retry_at),
            failed = quote_ident(&names.failed_at),
            reason = quote_ident(&names.failure_reason),
            at = quote_ident(&names.locked_at),
            where_ = self.condition(&words.failed, which),
        );
        let done = client.execute(&sql, &[]).await;
        done.map_err(|error| query_fault(&error, "putting rows back"))
    }

    fn condition(&self, status: &str, which: &Which) -> String {
        let outbox = self.outbox;
        let mut all = vec![format!(
            "{} = {}",
            quote_ident(&self.polling.columns.status),
            quote_literal(status)
        )];
        if !which.ids.is_empty() {
            let ids: Vec<String> = which.ids.iter().map(|id| quote_literal(id)).collect();
            let id = quote_ident(&outbox.columns.id);
            all.push(format!("{id}::pg_catalog.text IN ({})", ids.join(", ")));
        }
        if let Some(wanted) = &which.key {
            all.push(format!("{} = {}", statements::key(outbox), quote_literal(wanted)));
        }
        all.join(" AND ")
    }
}

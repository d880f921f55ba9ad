//! The oldest transaction of the server that has an id and is not over.
//!
//! `restart_lsn` of a logical slot moves when the walsender decodes a record of running transactions,
//! at most to where the oldest one of them began to write: in whatever database, and prepared
//! transactions as well. A transaction without an id has written nothing, and its snapshot holds back
//! vacuum only; so do the slots of others.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::{Client, Error};

use super::json_row::document_opt;
use super::quote::quote_literal;
use walrelay_base::text::escaped;

/// Less WAL than this between `restart_lsn` and the confirmed LSN harms nobody.
pub const PINNED_BYTES_MIN: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OldestTransaction {
    pub xid: u32,
    /// The backend that runs it; none if it is prepared.
    pub pid: Option<i32>,
    /// The backend's `application_name`, or the id of a prepared transaction.
    name: String,
    /// The state of the backend; hidden from a role without `pg_read_all_stats`, as is the
    /// age.
    state: Option<String>,
    database: Option<String>,
    pub age_ms: Option<u64>,
}

impl OldestTransaction {
    fn kind(&self) -> &'static str {
        if self.pid.is_some() { "transaction" } else { "prepared_transaction" }
    }

    /// Which transaction it is. Never its query, which may have values in it.
    pub fn title(&self) -> String {
        let Some(pid) = self.pid else { return format!("prepared transaction {}", self.gid()) };
        let application = match escaped(&self.name) {
            name if name.is_empty() => "without application_name".to_owned(),
            name => format!("application_name {name}"),
        };
        let state = self.state.as_deref().map_or(String::new(), |state| format!(", {state}"));
        format!("transaction of pid {pid} ({application}{state})")
    }

    /// One line, with its age.
    pub fn summary(&self) -> String {
        let age = self.age_ms.map_or(String::new(), |ms| format!(", open for {} s", ms / 1000));
        format!("{}{age}", self.title())
    }

    /// The SQL that ends it.
    pub fn mend(&self) -> String {
        let place = match self.database.as_deref().map(escaped) {
            Some(database) => format!("in database {database}: "),
            None => String::new(),
        };
        match self.pid {
            Some(pid) => format!("SELECT pg_catalog.pg_terminate_backend({pid})"),
            None => format!("{place}ROLLBACK PREPARED {}", self.gid()),
        }
    }

    fn gid(&self) -> String {
        escaped(quote_literal(&self.name).trim_start())
    }

    /// For `/status`.
    pub fn to_json(&self, age_s: u64, text: &str) -> Value {
        json!({ "kind": self.kind(), "pid": self.pid, "name": self.name, "age_seconds": age_s,
            "text": text })
    }
}

/// `xact_start` and `state` are NULL in the rows of other roles, `pid`, `application_name` and
/// `backend_xid` are not.
const SQL: &str = "
SELECT pg_catalog.json_build_object('xid', t.xid::pg_catalog.text::pg_catalog.int8, 'pid', t.pid,
  'name', coalesce(t.name, ''), 'state', t.state, 'database', t.database,
  'age_ms', CASE WHEN t.began IS NOT NULL THEN greatest(0,
      (extract(epoch FROM pg_catalog.clock_timestamp() - t.began) * 1000)::bigint) END)::pg_catalog.text
FROM (
  SELECT a.backend_xid AS xid, a.pid, a.application_name AS name, a.state, a.datname AS database,
    a.xact_start AS began
  FROM pg_catalog.pg_stat_activity a WHERE a.backend_xid IS NOT NULL
  UNION ALL
  SELECT p.transaction, NULL, p.gid, NULL, p.database, p.prepared FROM pg_catalog.pg_prepared_xacts p
) t ORDER BY pg_catalog.age(t.xid) DESC LIMIT 1";

/// None while no transaction has an id.
pub async fn oldest_transaction(client: &Client) -> Result<Option<OldestTransaction>, Error> {
    document_opt(client, SQL, &[]).await
}

#[cfg(test)]
#[path = "oldest_transaction_tests.rs"]
mod tests;

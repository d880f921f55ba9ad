//! What a run cost Postgres, from its own statistics.
//!
//! Backends report what they did seconds late when they idle, and walsenders of older servers only
//! when they end. So the figures are read before the relay begins and after relay and load have gone,
//! which makes them exact, and the part is given that falls to the measured events. Rows are those of
//! the scratch table; transactions are all of the database's, and WAL is all of the server's, so
//! others who work meanwhile are counted, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::process_stats;
use super::relay_process::application_name;
use super::report::PostgresCost;
use super::scratch_source::{ask, ask_one, connect};
use crate::base::error::Fault;
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::settings::ConnInfo;

/// How long statistics may take to show what is known to have been written.
const SHOWN_WITHIN: Duration = Duration::from_secs(4);
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Counters as they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PostgresCounters {
    transactions: i64,
    read: i64,
    inserted: i64,
    updated: i64,
    deleted: i64,
    pub(super) wal_bytes: i64,
    /// Queries of the meter itself; each is a transaction.
    queries: u64,
}

/// What the load did by itself, and how much of it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadShare {
    /// Each is a transaction.
    pub(super) rows: u64,
    pub(super) wal_bytes: f64,
    /// The part of the events that was measured.
    pub(super) measured: f64,
}

impl PostgresCounters {
    /// What came to them since `before`, without what the load and the meter did; of that the part
    /// that falls to the measured events.
    pub(super) fn since(self, before: PostgresCounters, load: LoadShare) -> PostgresCost {
        let more = |now: i64, then: i64| u64::try_from(now - then).unwrap_or_default();
        let part = |count: u64| (count as f64 * load.measured).round() as u64;
        let inserted = more(self.inserted, before.inserted);
        let changed = more(self.updated, before.updated) + more(self.deleted, before.deleted);
        let transactions = more(self.transactions, before.transactions);
        let wal_bytes = more(self.wal_bytes, before.wal_bytes);
        PostgresCost {
            transactions: part(
                transactions.saturating_sub(load.rows + (self.queries - before.queries)),
            ),
            tuples_read: part(more(self.read, before.read)),
            tuples_written: part((inserted + changed).saturating_sub(load.rows)),
            // Each change of a row leaves its old version behind, whether or not vacuum was there.
            dead_tuples: part(changed),
            wal_bytes: part(wal_bytes.saturating_sub(load.wal_bytes.round() as u64)),
            cpu_s: None,
        }
    }

    fn rows(&self) -> [i64; 4] {
        [self.read, self.inserted, self.updated, self.deleted]
    }
}

/// Reads counters over a connection of its own, which counts its own queries.
pub(super) struct PostgresMeter {
    client: Client,
    name: String,
    pub(super) is_local: bool,
    queries: u64,
    cpu: CpuTimes,
}

impl PostgresMeter {
    /// Connects, and finds out whether the database is on this machine.
    pub(super) async fn open(info: &ConnInfo, name: &str) -> Result<PostgresMeter, Fault> {
        const WHO: &str = "SELECT pid, extract(epoch FROM backend_start)::double precision
            FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()";
        let client = connect(info, &format!("{name}_meter")).await?;
        let row = ask_one(&client, "looking for its own backend", WHO).await?;
        let (pid, began): (i32, Option<f64>) = (row.get(0), row.get(1));
        let is_local = began
            .zip(u32::try_from(pid).ok())
            .is_some_and(|(began, pid)| process_stats::is_postgres(pid, began));
        let (name, cpu) = (name.to_owned(), CpuTimes::default());
        Ok(PostgresMeter { client, name, is_local, queries: 1, cpu })
    }

    pub(super) async fn read(&mut self) -> Result<PostgresCounters, Fault> {
        let table = quote_literal(&format!("{}.outbox", quote_ident(&self.name)));
        let sql = format!(
            "SELECT d.xact_commit + d.xact_rollback,
                    t.seq_tup_read + coalesce(t.idx_tup_fetch, 0),
                    t.n_tup_ins, t.n_tup_upd, t.n_tup_del,
                    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint
             FROM pg_catalog.pg_stat_database d, pg_catalog.pg_stat_user_tables t
             WHERE d.datname = pg_catalog.current_database() AND t.relid = {table}::pg_catalog.regclass"
        );
        self.queries += 1;
        let row = ask_one(&self.client, "reading statistics", &sql).await?;
        Ok(PostgresCounters {
            transactions: row.get(0),
            read: row.get(1),
            inserted: row.get(2),
            updated: row.get(3),
            deleted: row.get(4),
            wal_bytes: row.get(5),
            queries: self.queries,
        })
    }

    /// Counters that show the insertion of so many rows and no longer move, or those at the deadline.
    pub(super) async fn settled(&mut self, inserted: u64) -> Result<PostgresCounters, Fault> {
        let deadline = Instant::now() + SHOWN_WITHIN;
        let wanted = i64::try_from(inserted).unwrap_or(i64::MAX);
        let mut before = self.read().await?;
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            let now = self.read().await?;
            let settled = now.inserted >= wanted && now.rows() == before.rows();
            if settled || Instant::now() > deadline {
                return Ok(now);
            }
            before = now;
        }
    }

    /// The CPU time of the relay's backends counts from here on.
    pub(super) async fn begin_cpu(&mut self) -> Result<(), Fault> {
        self.cpu = CpuTimes::default();
        self.sample_cpu(true).await
    }

    /// Samples again: backends come and go.
    pub(super) async fn look_at_cpu(&mut self) -> Result<(), Fault> {
        self.sample_cpu(false).await
    }

    /// CPU time of all backends seen; none when the database is on another machine.
    pub(super) fn cpu_s(&self) -> Option<f64> {
        self.is_local.then(|| self.cpu.total_s())
    }

    async fn sample_cpu(&mut self, first: bool) -> Result<(), Fault> {
        const WHO: &str =
            "SELECT pid, backend_type = 'autovacuum worker' FROM pg_catalog.pg_stat_activity
            WHERE application_name = $1
               OR backend_type = 'autovacuum worker' AND pg_catalog.strpos(query, $2) > 0";
        if !self.is_local {
            return Ok(());
        }
        self.queries += 1;
        let relay = application_name(&self.name);
        let names: [(&(dyn ToSql + Sync), Type); 2] =
            [(&relay, Type::TEXT), (&self.name, Type::TEXT)];
        for row in ask(&self.client, "looking at the relay's backends", WHO, &names).await? {
            let (pid, vacuums): (i32, Option<bool>) = (row.get(0), row.get(1));
            let Ok(pid) = u32::try_from(pid) else { continue };
            if let Some(now_s) = process_stats::cpu_s(pid) {
                // A vacuum worker has worked elsewhere before.
                self.cpu.observe(pid, now_s, first || vacuums == Some(true));
            }
        }
        Ok(())
    }
}

/// CPU time by process: at first sight, and last.
#[derive(Debug, Default)]
struct CpuTimes(BTreeMap<u32, (f64, f64)>);

impl CpuTimes {
    /// What a process had used before it was first seen counts unless it is `old`.
    fn observe(&mut self, pid: u32, now_s: f64, old: bool) {
        let begin = if old { now_s } else { 0.0 };
        self.0.entry(pid).or_insert((begin, now_s)).1 = now_s;
    }

    fn total_s(&self) -> f64 {
        process_stats::in_ticks(self.0.values().map(|(begin, last)| last - begin).sum())
    }
}

#[cfg(test)]
#[path = "postgres_cost_tests.rs"]
mod tests;

//! Cost of a run for Postgres, from its own statistics.
//!
//! Idle backends report their statistics seconds late, and walsenders of older servers only when
//! they end. So the counters are read before the relay starts and after relay and load have ended,
//! which is exact, and the result is the share of the measured events. Rows are those of the
//! scratch table; transactions are all of the database's and WAL is all of the server's, including
//! those of others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use walrelay_measure::process;

use super::relay_process::application_name;
use super::report::PostgresCost;
use super::scratch_source::{ask, ask_one, connect};
use walrelay_base::error::Fault;
use walrelay_postgres::quote::{quote_ident, quote_literal};
use walrelay_postgres::settings::ConnInfo;

/// How long Postgres may take to show in its statistics what is known to have been written.
const SHOWN_WITHIN: Duration = Duration::from_secs(4);
const READ_EVERY: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PostgresCounters {
    transactions: i64,
    read: i64,
    inserted: i64,
    updated: i64,
    deleted: i64,
    pub(super) wal_bytes: i64,
    /// Queries of the meter itself, each of which is a transaction.
    queries: u64,
}

/// The share of the load itself, and the part of the events that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadShare {
    /// Each is a transaction.
    pub(super) rows: u64,
    pub(super) wal_bytes: f64,
    pub(super) measured: f64,
}

impl PostgresCounters {
    /// The cost of the measured events: the difference without what load and meter did themselves.
    pub(super) fn since(self, before: PostgresCounters, load: LoadShare) -> PostgresCost {
        let more = |now: i64, then: i64| u64::try_from(now - then).unwrap_or_default();
        let part = |count: u64, own: u64| {
            (count.saturating_sub(own) as f64 * load.measured).round() as u64
        };
        let inserted = more(self.inserted, before.inserted);
        let changed = more(self.updated, before.updated) + more(self.deleted, before.deleted);
        let transactions = more(self.transactions, before.transactions);
        let own_transactions = load.rows + (self.queries - before.queries);
        let own_wal = load.wal_bytes.round() as u64;
        PostgresCost {
            transactions: part(transactions, own_transactions),
            tuples_read: part(more(self.read, before.read), 0),
            tuples_written: part(inserted + changed, load.rows),
            // Every UPDATE and DELETE leaves a dead tuple, whether or not vacuum has removed it.
            dead_tuples: part(changed, 0),
            wal_bytes: part(more(self.wal_bytes, before.wal_bytes), own_wal),
            cpu_s: None,
        }
    }

    fn rows(&self) -> [i64; 4] {
        [self.read, self.inserted, self.updated, self.deleted]
    }
}

/// Reads statistics over a connection of its own, and counts its own queries.
pub(super) struct PostgresMeter {
    client: Client,
    name: String,
    /// Does the database run on this machine? Only then is the CPU time of its backends known.
    pub(super) is_local: bool,
    queries: u64,
    cpu: CpuTimes,
}

impl PostgresMeter {
    pub(super) async fn open(info: &ConnInfo, name: &str) -> Result<PostgresMeter, Fault> {
        const OWN_BACKEND: &str = "SELECT pid, extract(epoch FROM backend_start)::double precision
            FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()";
        let client = connect(info, &format!("{name}_meter")).await?;
        let row = ask_one(&client, "looking for its own backend", OWN_BACKEND).await?;
        let (pid, began): (i32, Option<f64>) = (row.get(0), row.get(1));
        let is_local = began
            .zip(u32::try_from(pid).ok())
            .is_some_and(|(began, pid)| process::is_named(pid, "postgres", began));
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

    /// Reads until the counters show so many inserted rows and no longer change, at most
    /// [`SHOWN_WITHIN`].
    pub(super) async fn settled(&mut self, inserted: u64) -> Result<PostgresCounters, Fault> {
        let deadline = Instant::now() + SHOWN_WITHIN;
        let wanted = i64::try_from(inserted).unwrap_or(i64::MAX);
        let mut before = self.read().await?;
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let now = self.read().await?;
            let settled = now.inserted >= wanted && now.rows() == before.rows();
            if settled || Instant::now() > deadline {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Counts the CPU time of the relay's backends from now on.
    pub(super) async fn begin_cpu(&mut self) -> Result<(), Fault> {
        self.cpu = CpuTimes::default();
        self.sample_cpu(true).await
    }

    /// CPU time of all backends seen; none when the database is on another machine.
    pub(super) fn cpu_s(&self) -> Option<f64> {
        self.is_local.then(|| self.cpu.total_s())
    }

    /// Has to be called often, because backends start and end.
    pub(super) async fn sample_cpu(&mut self, is_first: bool) -> Result<(), Fault> {
        const BACKENDS: &str =
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
        for row in ask(&self.client, "looking at the relay's backends", BACKENDS, &names).await? {
            let (pid, vacuums): (i32, Option<bool>) = (row.get(0), row.get(1));
            let Ok(pid) = u32::try_from(pid) else { continue };
            if let Ok(now_s) = process::cpu_seconds(pid) {
                // An autovacuum worker has vacuumed other tables before.
                self.cpu.observe(pid, now_s, is_first || vacuums == Some(true));
            }
        }
        Ok(())
    }
}

/// CPU seconds by process: where counting begins, and the last value.
#[derive(Debug, Default)]
struct CpuTimes(BTreeMap<u32, (f64, f64)>);

impl CpuTimes {
    /// Observes a process. Its use from before it was first seen counts unless it `is_old`.
    fn observe(&mut self, pid: u32, now_s: f64, is_old: bool) {
        let begin = if is_old { now_s } else { 0.0 };
        self.0.entry(pid).or_insert((begin, now_s)).1 = now_s;
    }

    fn total_s(&self) -> f64 {
        process::in_ticks(self.0.values().map(|(begin, last)| last - begin).sum())
    }
}

#[cfg(test)]
#[path = "postgres_cost_tests.rs"]
mod tests;

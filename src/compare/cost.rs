//! What a run cost Postgres, from its own statistics.
//!
//! Backends report what they did seconds late when they idle, and walsenders of older servers only
//! when they end. So the figures are read before the relay begins and after relay and load have gone,
//! which makes them exact, and the part is given that falls to the measured events. Rows are those of the scratch table; transactions are all of the database's, and WAL is all
//! of the server's, so others who work meanwhile are counted, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::report::PostgresCost;
use super::{failed, proc};
use crate::base::error::Fault;
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::settings::ConnInfo;

/// How long statistics may take to show what is known to have been written.
const SHOWN_WITHIN: Duration = Duration::from_secs(4);
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Counters as they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) transactions: i64,
    pub(super) read: i64,
    pub(super) inserted: i64,
    pub(super) updated: i64,
    pub(super) deleted: i64,
    pub(super) wal_bytes: i64,
}

/// What the load did by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) transactions: u64,
    pub(super) rows: u64,
    pub(super) wal_bytes: f64,
}

impl Counters {
    /// What came to them since `before`, without what the load and the looking did.
    pub(super) fn since(self, before: Counters, load: Share, looks: u64) -> PostgresCost {
        let more = |now: i64, then: i64| u64::try_from(now - then).unwrap_or_default();
        let inserted = more(self.inserted, before.inserted);
        let changed = more(self.updated, before.updated) + more(self.deleted, before.deleted);
        let transactions = more(self.transactions, before.transactions);
        PostgresCost {
            transactions: transactions.saturating_sub(load.transactions + looks),
            tuples_read: more(self.read, before.read),
            tuples_written: (inserted + changed).saturating_sub(load.rows),
            // Each change of a row leaves its old version behind, whether or not vacuum was there.
            dead_tuples: changed,
            wal_bytes: more(self.wal_bytes, before.wal_bytes)
                .saturating_sub(load.wal_bytes.round() as u64),
            cpu_s: None,
        }
    }
}

/// Of what `total` events cost, the part of those that were measured.
pub(super) fn measured_part(whole: PostgresCost, events: u64, total: u64) -> PostgresCost {
    let part = |count: u64| (count as f64 * events as f64 / total.max(1) as f64).round() as u64;
    PostgresCost {
        transactions: part(whole.transactions),
        tuples_read: part(whole.tuples_read),
        tuples_written: part(whole.tuples_written),
        dead_tuples: part(whole.dead_tuples),
        wal_bytes: part(whole.wal_bytes),
        cpu_s: whole.cpu_s,
    }
}

/// Reads counters over a connection of its own, which counts its own queries.
pub(super) struct Meter {
    client: Client,
    name: String,
    pub(super) is_local: bool,
    /// Queries so far; each is a transaction.
    looks: u64,
    cpu: Cpu,
}

impl Meter {
    /// Connects, and finds out whether the database is on this machine.
    pub(super) async fn open(info: &ConnInfo, name: &str) -> Result<Meter, Fault> {
        const WHO: &str = "SELECT pid, extract(epoch FROM backend_start)::double precision
            FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()";
        let client = super::connect(info, &format!("{name}_meter")).await?;
        let row = client.query_typed_one(WHO, &[]).await;
        let row = row.map_err(|error| failed(&error, "looking for its own backend"))?;
        let (pid, began): (i32, Option<f64>) = (row.get(0), row.get(1));
        let is_local = began
            .zip(u32::try_from(pid).ok())
            .is_some_and(|(began, pid)| proc::is_postgres(pid, began));
        Ok(Meter { client, name: name.to_owned(), is_local, looks: 1, cpu: Cpu::default() })
    }

    /// How many queries it has made.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    pub(super) async fn read(&mut self) -> Result<Counters, Fault> {
        let table = quote_literal(&format!("{}.outbox", quote_ident(&self.name)));
        let sql = format!(
            "SELECT d.xact_commit + d.xact_rollback,
                    t.seq_tup_read + coalesce(t.idx_tup_fetch, 0),
                    t.n_tup_ins, t.n_tup_upd, t.n_tup_del,
                    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint
             FROM pg_catalog.pg_stat_database d, pg_catalog.pg_stat_user_tables t
             WHERE d.datname = pg_catalog.current_database() AND t.relid = {table}::pg_catalog.regclass"
        );
        self.looks += 1;
        let row = self.client.query_typed_one(&sql, &[]).await;
        let row = row.map_err(|error| failed(&error, "reading statistics"))?;
        Ok(Counters {
            transactions: row.get(0),
            read: row.get(1),
            inserted: row.get(2),
            updated: row.get(3),
            deleted: row.get(4),
            wal_bytes: row.get(5),
        })
    }

    /// Counters that show the insertion of so many rows and do not move any more, as far as that can
    /// be had in time.
    pub(super) async fn settled(&mut self, inserted: u64) -> Result<Counters, Fault> {
        let deadline = Instant::now() + SHOWN_WITHIN;
        let wanted = i64::try_from(inserted).unwrap_or(i64::MAX);
        let mut before = self.read().await?;
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            let now = self.read().await?;
            let moves = (now.read, now.updated, now.deleted, now.inserted)
                != (before.read, before.updated, before.deleted, before.inserted);
            if (now.inserted >= wanted && !moves) || Instant::now() > deadline {
                return Ok(now);
            }
            before = now;
        }
    }

    /// The CPU time of the relay's backends counts from here on.
    pub(super) async fn begin_cpu(&mut self) -> Result<(), Fault> {
        self.cpu = Cpu::default();
        self.sample_cpu(true).await
    }

    /// Looks at them again; they come and go.
    pub(super) async fn look_at_cpu(&mut self) -> Result<(), Fault> {
        self.sample_cpu(false).await
    }

    /// Of all that were seen; none when they are elsewhere.
    pub(super) fn cpu_s(&self) -> Option<f64> {
        self.is_local.then(|| self.cpu.total_s())
    }

    async fn sample_cpu(&mut self, first: bool) -> Result<(), Fault> {
        if !self.is_local {
            return Ok(());
        }
        const WHO: &str =
            "SELECT pid, backend_type = 'autovacuum worker' FROM pg_catalog.pg_stat_activity
            WHERE application_name = $1
               OR backend_type = 'autovacuum worker' AND pg_catalog.strpos(query, $2) > 0";
        let relay = application_name(&self.name);
        self.looks += 1;
        let asked: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&relay, Type::TEXT), (&self.name, Type::TEXT)];
        let rows = self.client.query_typed(WHO, asked).await;
        for row in rows.map_err(|error| failed(&error, "looking at the relay's backends"))? {
            let (pid, vacuums): (i32, Option<bool>) = (row.get(0), row.get(1));
            let Ok(pid) = u32::try_from(pid) else { continue };
            if let Some(now_s) = proc::cpu_s(pid) {
                // A vacuum worker has worked elsewhere before.
                self.cpu.observe(pid, now_s, first || vacuums == Some(true));
            }
        }
        Ok(())
    }
}

/// By which the relay's sessions are known.
pub(super) fn application_name(name: &str) -> String {
    format!("{name}_relay")
}

/// CPU time by process: at first sight, and last.
#[derive(Debug, Default)]
struct Cpu(BTreeMap<u32, (f64, f64)>);

impl Cpu {
    /// What a process had used before it was first seen counts unless it is `old`.
    fn observe(&mut self, pid: u32, now_s: f64, old: bool) {
        let begin = if old { now_s } else { 0.0 };
        self.0.entry(pid).or_insert((begin, now_s)).1 = now_s;
    }

    fn total_s(&self) -> f64 {
        self.0.values().map(|(begin, last)| last - begin).sum()
    }
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;

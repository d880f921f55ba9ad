//! A PostgreSQL with an outbox, and slots that let several readers have the same bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::kit::wait_for;
use crate::load::{create_outbox, create_slot, execute};
use crate::{Postgres, PostgresOptions, Result};

pub const PUBLICATION: &str = "walrelay";
/// The slot that stands before a backlog; nobody reads it, it is copied.
const BASE_SLOT: &str = "bench_base";
const OUTBOX: &str = "public.outbox";
const WALSENDER_LIMIT: Duration = Duration::from_secs(10);

pub struct Source {
    postgres: Postgres,
    next: AtomicU64,
}

impl Source {
    /// Starts it. Checkpoints and vacuum would fall into one contender's run and not into
    /// another's, so they are kept out of all of them; commits stay durable.
    pub fn start() -> Result<Source> {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let settings = vec![
            setting("max_wal_size", "32GB"),
            setting("checkpoint_timeout", "1h"),
            setting("autovacuum", "off"),
            // Growth freezes the relay while a large backlog is written.
            setting("wal_sender_timeout", "10min"),
        ];
        let version = Some(17);
        let postgres =
            Postgres::start(PostgresOptions { settings, version, ..Default::default() })?;
        let source = Source { postgres, next: AtomicU64::new(0) };
        create_outbox(&source.url(), OUTBOX)?;
        Ok(source)
    }

    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    pub fn postgres_mut(&mut self) -> &mut Postgres {
        &mut self.postgres
    }

    pub fn url(&self) -> String {
        self.postgres.url("postgres")
    }

    /// A number that was not given before: for names and seeds.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn server_version(&self) -> Result<String> {
        self.ask("show server_version")
    }

    pub fn ask(&self, sql: &str) -> Result<String> {
        Ok(self.postgres.sql("postgres", sql)?.trim().to_owned())
    }

    /// An empty outbox and a new base slot: what is written from now on is the backlog.
    pub fn begin_backlog(&self) -> Result<()> {
        self.empty()?;
        create_slot(&self.url(), PUBLICATION, BASE_SLOT, OUTBOX)
    }

    /// The backlog is not needed any more; its WAL may go.
    pub fn end_backlog(&self) -> Result<()> {
        self.drop_slot(BASE_SLOT)
    }

    /// Empties the outbox and writes what is dirty, so that no measurement pays for the last one.
    pub fn empty(&self) -> Result<()> {
        execute(&self.url(), "truncate public.outbox")?;
        self.checkpoint()
    }

    pub fn checkpoint(&self) -> Result<()> {
        execute(&self.url(), "checkpoint")
    }

    /// A slot where the base slot stands: all contenders start at the same byte.
    pub fn copied_slot(&self) -> Result<String> {
        let name = format!("bench_{}", self.number());
        let copy = format!("select pg_copy_logical_replication_slot('{BASE_SLOT}', '{name}')");
        execute(&self.url(), &copy)?;
        Ok(name)
    }

    pub fn fresh_slot(&self) -> Result<String> {
        let name = format!("bench_{}", self.number());
        create_slot(&self.url(), PUBLICATION, &name, OUTBOX)?;
        Ok(name)
    }

    /// Drops a slot once its reader has let go of it.
    pub fn drop_slot(&self, name: &str) -> Result<()> {
        let sql = format!(
            "do $$ begin
               for i in 1..1000 loop
                 exit when not exists (select from pg_replication_slots
                                       where slot_name = '{name}' and active);
                 perform pg_sleep(0.01);
               end loop;
               perform pg_drop_replication_slot('{name}');
             end $$"
        );
        execute(&self.url(), &sql)
    }

    /// The walsender of a slot, as soon as there is one.
    pub fn walsender(&self, application_name: &str) -> Result<u32> {
        let what = format!("a walsender for {application_name}");
        let sql = format!(
            "select pid from pg_stat_replication where application_name = '{application_name}' limit 1"
        );
        wait_for(what, WALSENDER_LIMIT, Duration::from_millis(5), || {
            Ok(self.ask(&sql)?.parse().ok())
        })
    }
}

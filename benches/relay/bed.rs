//! The services, and the slots that each measurement gets afresh.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use walrelay_harness::kit::{KitError, KitResult};
use walrelay_harness::load::{create_outbox, create_slot, execute};
use walrelay_harness::relay::{RelayConfig, RelayProcess};
use walrelay_harness::{Postgres, PostgresOptions, proc, run_folder};

use crate::broker::{Broker, Queue, Target};
use crate::options::Options;

/// The one publication.
pub(crate) const PUBLICATION: &str = "walrelay";
/// The slot that stands before a backlog; nobody reads it, it is copied.
const BASE_SLOT: &str = "bench_base";
const OUTBOX: &str = "public.outbox";
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// What one relay process differs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Nowhere: confirmed at once.
    Null,
    /// The broker, the default preset.
    Broker,
    /// The broker, header `id` only.
    Debezium,
    /// The broker, through another binary.
    Against(usize),
}

/// Real services with an outbox.
pub(crate) struct Bed {
    postgres: Postgres,
    broker: Broker,
    folder: PathBuf,
    binary: PathBuf,
    against: Vec<PathBuf>,
    next: AtomicU64,
}

impl Bed {
    /// Starts both. Checkpoints and vacuum would fall into one contender's run and not into
    /// another's, so they are kept out of all of them; commits stay durable.
    pub(crate) fn start(options: &Options) -> KitResult<Bed> {
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
        let broker = Broker::start(options.sink)?;
        let folder = run_folder()?.join(format!("bench-{}", std::process::id()));
        let built = || PathBuf::from(env!("CARGO_BIN_EXE_walrelay"));
        let binary = options.binary.clone().unwrap_or_else(built);
        let against = options.against.clone();
        let next = AtomicU64::new(0);
        let bed = Bed { postgres, broker, folder, binary, against, next };
        create_outbox(&bed.url(), OUTBOX)?;
        Ok(bed)
    }

    pub(crate) fn url(&self) -> String {
        self.postgres.url("postgres")
    }

    /// A number that was not given before: for names and seeds.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn server_version(&self) -> KitResult<String> {
        self.ask("show server_version")
    }

    pub(crate) fn broker_version(&self) -> KitResult<String> {
        self.broker.version()
    }

    /// One value.
    pub(crate) fn ask(&self, sql: &str) -> KitResult<String> {
        Ok(self.postgres.psql("postgres", sql)?.trim().to_owned())
    }

    pub(crate) fn pg_recvlogical(&self) -> PathBuf {
        self.postgres.bin_dir().join("pg_recvlogical")
    }

    /// An empty outbox and a new base slot: what is written from now on is the backlog.
    pub(crate) fn begin_backlog(&self) -> KitResult<()> {
        self.empty()?;
        create_slot(&self.url(), PUBLICATION, BASE_SLOT, OUTBOX)
    }

    /// The backlog is not needed any more; its WAL may go.
    pub(crate) fn end_backlog(&self) -> KitResult<()> {
        self.drop_slot(BASE_SLOT)
    }

    /// Empties the outbox and writes what is dirty, so that no measurement pays for the last one.
    pub(crate) fn empty(&self) -> KitResult<()> {
        execute(&self.url(), "truncate public.outbox")?;
        self.checkpoint()
    }

    pub(crate) fn checkpoint(&self) -> KitResult<()> {
        execute(&self.url(), "checkpoint")
    }

    /// A slot where the base slot stands: all contenders start at the same byte.
    pub(crate) fn copied_slot(&self) -> KitResult<String> {
        let name = format!("bench_{}", self.number());
        let copy = format!("select pg_copy_logical_replication_slot('{BASE_SLOT}', '{name}')");
        execute(&self.url(), &copy)?;
        Ok(name)
    }

    /// A slot at the end of the WAL.
    pub(crate) fn fresh_slot(&self) -> KitResult<String> {
        let name = format!("bench_{}", self.number());
        create_slot(&self.url(), PUBLICATION, &name, OUTBOX)?;
        Ok(name)
    }

    /// Drops a slot once its reader has let go of it.
    pub(crate) fn drop_slot(&self, name: &str) -> KitResult<()> {
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

    /// A topic, or a queue of that kind.
    pub(crate) fn target(&self, queue: Queue) -> KitResult<Target> {
        self.broker.target(queue, self.number())
    }

    /// A relay on a slot. One configuration for all parts: the defaults.
    pub(crate) fn relay(&self, to: To, slot: &str, target: &Target) -> KitResult<RelayProcess> {
        let mut config = match to {
            To::Null => RelayConfig::memory_sink(self.url()),
            _ => target.relay_config(self.url()),
        };
        config.slot = slot.to_owned();
        config.publication = PUBLICATION.to_owned();
        if to == To::Debezium {
            config.env.push(("WALRELAY_ROUTE__PRESET".into(), "debezium".into()));
        }
        let binary = match to {
            To::Against(which) => self.against.get(which).unwrap_or(&self.binary),
            _ => &self.binary,
        };
        RelayProcess::start(binary, &self.folder, config)
    }

    /// Stops a relay in good order: a measurement that ends otherwise does not count.
    pub(crate) fn stop(&self, mut relay: RelayProcess) -> KitResult<()> {
        relay.sigterm()?;
        match relay.wait_exit(STOP_LIMIT)? {
            0 => Ok(()),
            code => {
                let said = relay.tail(20);
                Err(KitError::Other(format!("the relay ended with {code}\n{said}")))
            }
        }
    }

    /// The walsender of a slot, as soon as there is one.
    pub(crate) fn walsender(&self, application_name: &str) -> KitResult<u32> {
        let began = Instant::now();
        loop {
            let found = proc::walsenders(&self.url())?;
            let named = |sender: &&proc::Walsender| sender.application_name == application_name;
            if let Some(sender) = found.iter().find(named) {
                return Ok(sender.pid);
            }
            if began.elapsed() > Duration::from_secs(10) {
                let what = format!("a walsender for {application_name}");
                return Err(KitError::Timeout { what, waited: began.elapsed() });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Temporary files; what cannot be removed is no reason to hide a result.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

//! The services, and the relay between them.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use walrelay_harness::bench::{CpuSeconds, PUBLICATION, Source};
use walrelay_harness::relay::{RelayConfig, RelayProcess};
use walrelay_harness::{Broker, Result, run_folder};

use crate::broker::{self, Queue, Target};
use crate::drain::Contender;
use crate::options::Options;

const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Real services with an outbox.
pub(crate) struct Bed {
    source: Source,
    broker: Broker,
    folder: PathBuf,
    binary: PathBuf,
    against: Vec<PathBuf>,
}

impl Bed {
    /// Starts both.
    pub(crate) fn start(options: &Options) -> Result<Bed> {
        let source = Source::start()?;
        let broker = Broker::start(options.sink)?;
        let folder = run_folder()?.join(format!("bench-{}", std::process::id()));
        let built = || PathBuf::from(env!("CARGO_BIN_EXE_walrelay"));
        let binary = options.binary.clone().unwrap_or_else(built);
        let against = options.against.clone();
        Ok(Bed { source, broker, folder, binary, against })
    }

    pub(crate) fn broker_version(&self) -> Result<String> {
        broker::version(&self.broker)
    }

    pub(crate) fn pg_recvlogical(&self) -> PathBuf {
        self.postgres().bin_dir().unwrap_or_default().join("pg_recvlogical")
    }

    /// A topic, or a queue of that kind.
    pub(crate) fn target(&self, queue: Queue) -> Result<Target> {
        Target::new(&self.broker, queue, self.number())
    }

    /// A relay on a slot. One configuration for all parts: the defaults, but for what the contender
    /// is named after.
    pub(crate) fn relay(
        &self,
        contender: Contender,
        slot: &str,
        target: &Target,
    ) -> Result<RelayProcess> {
        let mut config = match contender {
            // To the memory sink.
            Contender::NullSink => RelayConfig::new(self.url(), ""),
            _ => target.relay_config(self.url()),
        };
        config.slot = slot.to_owned();
        config.publication = PUBLICATION.to_owned();
        if contender == Contender::KafkaDebezium {
            config.env.push(("WALRELAY_ROUTE__PRESET".into(), "debezium".into()));
        }
        let binary = match contender {
            Contender::Against(which) => self.against.get(which).unwrap_or(&self.binary),
            _ => &self.binary,
        };
        RelayProcess::start(binary, &self.folder, config)
    }

    /// The CPU cost of all processes so far, with this relay.
    pub(crate) fn cpu(&self, relay: &RelayProcess) -> Result<CpuSeconds> {
        CpuSeconds::now(self.postgres().pid(), self.broker.pid(), relay.pid())
    }

    /// Stops a relay in good order: a measurement that ends otherwise does not count.
    pub(crate) fn stop(&self, mut relay: RelayProcess) -> Result<()> {
        relay.stop(STOP_LIMIT)
    }
}

impl Deref for Bed {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Temporary files; what cannot be removed is no reason to hide a result.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

//! Where everybody is measured: PostgreSQL with an outbox, Kafka, and a folder for each run.

use std::path::PathBuf;
use std::time::Duration;

use walrelay_harness::bench::{CpuSeconds, Source};
use walrelay_harness::consumer::{create_topic, delete_topic};
use walrelay_harness::kit::wait_at_most;
use walrelay_harness::program::Program;
use walrelay_harness::{HarnessError, Kafka, Result};

use crate::options::Options;
use crate::peer::{Contender, Target};

/// The partitions of every topic, as the peers were measured before.
const PARTITIONS: i32 = 8;
const START_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Place {
    pub(crate) source: Source,
    pub(crate) kafka: Kafka,
    out: PathBuf,
}

impl Place {
    pub(crate) fn start(options: &Options) -> Result<Place> {
        let (source, kafka) = (Source::start()?, Kafka::start()?);
        Ok(Place { source, kafka, out: options.out.join("peers") })
    }

    /// A slot with a topic of its own.
    pub(crate) fn target(&self, slot: String) -> Result<Target> {
        let brokers = self.kafka.bootstrap();
        let topic = format!("peers{}.order", self.source.number());
        create_topic(&brokers, &topic, PARTITIONS, &[])?;
        Ok(Target { postgres_port: self.source.postgres().port(), brokers, slot, topic })
    }

    /// The broker's disk is bounded too; a slot holds WAL back.
    pub(crate) fn forget(&self, target: &Target) -> Result<()> {
        delete_topic(&target.brokers, &target.topic)?;
        self.source.drop_slot(&target.slot)
    }

    /// Starts a contender in an empty folder of its own; its configuration and its log stay there.
    pub(crate) fn start_contender(
        &self,
        contender: &Contender,
        target: &Target,
        what: &str,
    ) -> Result<Program> {
        let folder = self.out.join(format!("{}-{what}", contender.peer.id()));
        if folder.exists() {
            let failed = HarnessError::io(format!("empty {}", folder.display()));
            std::fs::remove_dir_all(&folder).map_err(failed)?;
        }
        contender.start(target, &folder)
    }

    /// The CPU cost of all processes so far, with this contender.
    pub(crate) fn cpu(&self, program: &Program) -> Result<CpuSeconds> {
        CpuSeconds::now(self.source.postgres().pid(), self.kafka.pid(), program.pid())
    }

    /// Waits until somebody streams from the slot.
    pub(crate) fn wait_streaming(&self, target: &Target, program: &mut Program) -> Result<()> {
        let sql =
            format!("select active from pg_replication_slots where slot_name = '{}'", target.slot);
        let found = wait_at_most(START_LIMIT, Duration::from_millis(20), || {
            still_runs(program)?;
            Ok((self.source.ask(&sql)? == "t").then_some(()))
        })?;
        found.ok_or_else(|| {
            let what = format!("a reader of the slot\n{}", program.tail(20));
            HarnessError::Late { what, limit: START_LIMIT }
        })
    }
}

/// A contender that has died gives no figure.
pub(crate) fn still_runs(program: &mut Program) -> Result<()> {
    if program.is_running() {
        return Ok(());
    }
    let code = program.wait_exit(Duration::ZERO)?;
    Err(HarnessError::Other(format!("it ended with {code}\n{}", program.tail(20))))
}

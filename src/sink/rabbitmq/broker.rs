//! RabbitMQ as a broker: what the configuration leads to.

use std::sync::Arc;

use super::settings::RabbitSettings;
use super::{RabbitSink, bench_target, dead_letters, doctor, fault, topology};
use crate::base::error::Fault;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::Scratch;
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::settings::{Misfit, Section};
use crate::sink::{Broker, First, Inspection, Sink, Wanted};

pub(in crate::sink) use fault::rows as errors;

/// Reads the section `[sink.rabbitmq]`.
pub(in crate::sink) fn configure(section: &dyn Section) -> Result<Arc<dyn Broker>, Vec<Misfit>> {
    Ok(Arc::new(RabbitSettings::read(section)?))
}

impl Broker for RabbitSettings {
    fn open(&self, first: Option<&First<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        Ok(Box::new(RabbitSink::open(self, first)?))
    }

    fn inspect(&self, wanted: &Wanted) -> Inspection {
        doctor::inspect(self, wanted)
    }

    fn prepare(&self, wanted: &Wanted) -> Result<Vec<String>, Vec<Fault>> {
        topology::prepare(self, wanted)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(dead_letters::open(self, dead_letters, from)?))
    }

    fn toward_scratch(&self, name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(bench_target::toward(self, name)))
    }

    fn make_scratch(&self, name: &str) -> Result<Box<dyn Scratch>, Fault> {
        Ok(Box::new(bench_target::make(self, name)?))
    }

    fn scratch_by_hand(&self, name: &str) -> String {
        bench_target::by_hand(self, name)
    }

    fn remove_scratch(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }

    /// Ours and lapin's are busy at once: over a shared arena they cost a quarter more, and with
    /// arenas of their own the memory stays the same.
    fn shares_malloc_arena(&self) -> bool {
        false
    }
}

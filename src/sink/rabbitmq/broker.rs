//! RabbitMQ as a broker: what the configuration leads to.

use std::sync::Arc;

use super::settings::{self, RabbitSection, RabbitSettings};
use super::{RabbitSink, bench_target, dead_letters, doctor, fault, topology};
use crate::base::error::Fault;
use crate::base::event::CloudEventsBinding;
use crate::base::finding::Finding;
use crate::base::settings::{Settings as _, Values};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::BenchTarget;
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::settings::{InvalidSetting, Surroundings};
use crate::sink::{Broker, Requirements, RouteRules, Sink, SinkKind, StartupCheck};

/// What the rest of the relay knows of it.
pub(in crate::sink) const SINK: SinkKind = SinkKind {
    name: "rabbitmq",
    title: "RabbitMQ",
    keys: RabbitSection::fields,
    configure,
    routes: RouteRules {
        check_topic: settings::check_routing_key,
        reach_dead_letters: false,
        have_partitions: false,
        own_headers: &[("key", "the header key carries the ordering key on RabbitMQ")],
        exchange_key: Some("exchange"),
    },
    binding: CloudEventsBinding::Amqp,
    // Our thread and lapin's are busy at once: over a shared arena they cost a quarter more, and
    // with arenas of their own the memory stays the same.
    shares_malloc_arena: false,
    errors: fault::rows,
};

fn configure(
    values: &Values,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>> {
    Ok(Arc::new(RabbitSection::read(values).settings(around)?))
}

impl Broker for RabbitSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, first: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        Ok(Box::new(RabbitSink::open(self, first)?))
    }

    fn inspect(&self, wanted: &Requirements) -> Vec<Finding> {
        doctor::inspect(self, wanted)
    }

    fn prepare(&self, wanted: &Requirements) -> Result<Vec<String>, Vec<Fault>> {
        topology::prepare(self, wanted)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(dead_letters::open(self, dead_letters, from)?))
    }

    fn for_bench_target(&self, name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(bench_target::toward(self, name)))
    }

    fn create_bench_target(&self, name: &str) -> Result<Box<dyn BenchTarget>, Fault> {
        Ok(Box::new(bench_target::make(self, name)?))
    }

    fn bench_target_removal(&self, name: &str) -> String {
        bench_target::by_hand(self, name)
    }

    fn remove_bench_target(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }
}

//! RabbitMQ as one of the sinks.

use std::sync::Arc;

use super::publish::RabbitSink;
use super::settings::{self, RabbitSettings};
use super::{bench_target, dead_letters, doctor, fault, init, search};
use crate::base::error::Fault;
use crate::base::event::{CloudEventsBinding, MessagingNames};
use crate::base::finding::Finding;
use crate::base::settings::{Settings as _, Values};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::BenchTarget;
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::search::{SearchReport, SearchScope, TakeRecord};
use crate::sink::settings::{InvalidSetting, Surroundings};
use crate::sink::{Broker, Requirements, RouteRules, Sink, SinkKind, StartupCheck};

pub(in crate::sink) const SINK: SinkKind = SinkKind {
    name: "rabbitmq",
    serves_consumers: true,
    title: "RabbitMQ",
    keys: RabbitSettings::fields,
    configure,
    routes: RouteRules {
        check_topic: settings::check_routing_key,
        reach_dead_letters: false,
        have_partitions: false,
        own_headers: &[("key", "the header key carries the ordering key on RabbitMQ")],
        exchange_key: Some("exchange"),
    },
    binding: CloudEventsBinding::Amqp,
    messaging: MessagingNames {
        routing_key: Some("messaging.rabbitmq.destination.routing_key"),
        ..MessagingNames::NONE
    },
    // Messages are allocated on the data thread and freed on the sink's, both busy at once: a shared
    // arena costs CPU, and separate ones no more memory.
    errors: fault::rows,
};

fn configure(
    values: &Values,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>> {
    Ok(Arc::new(RabbitSettings::from_values(values, around)?))
}

impl Broker for RabbitSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        Ok(Box::new(RabbitSink::open(self, check)?))
    }

    fn inspect(&self, required: &Requirements) -> Vec<Finding> {
        doctor::inspect(self, required)
    }

    fn prepare(&self, required: &Requirements) -> Result<Vec<String>, Vec<Fault>> {
        init::prepare(self, required)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(dead_letters::open(self, dead_letters, from)?))
    }

    fn search(&self, scope: &SearchScope<'_>, take: &mut TakeRecord<'_>) -> SearchReport {
        search::search(self, scope, take)
    }

    fn for_bench_target(&self, name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(bench_target::settings_for(self, name)))
    }

    fn create_bench_target(&self, name: &str) -> Result<Box<dyn BenchTarget>, Fault> {
        Ok(Box::new(bench_target::create(self, name)?))
    }

    fn bench_target_removal(&self, name: &str) -> String {
        bench_target::removal(self, name)
    }

    fn remove_bench_target(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }
}

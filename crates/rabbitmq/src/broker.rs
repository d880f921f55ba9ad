//! RabbitMQ as one of the sinks.

use std::sync::Arc;
use std::time::Duration;

use super::settings::{self, RabbitSettings};
use super::{bench_target, dead_letters, doctor, fault, init, publish, rights};
use walrelay_base::error::{Exit, Fault};
use walrelay_base::event::{CloudEventsBinding, MessagingNames};
use walrelay_base::finding::Finding;
use walrelay_base::template::Template;
use walrelay_base::text::quoted;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_sink::bench_target::BenchTarget;
use walrelay_sink::broker::{DeleteBefore, NOT_PURGED, read_section};
use walrelay_sink::log::{DeadLetterLog, ReadFrom};
use walrelay_sink::{Broker, Requirements, RouteRules, Sink, SinkKind, StartupCheck};

pub const SINK: SinkKind = SinkKind {
    name: "rabbitmq",
    serves_consumers: true,
    reads_dead_letters: true,
    title: "RabbitMQ",
    read: read_section::<RabbitSettings>,
    example: Some(include_str!("../../../config/rabbitmq.toml")),
    client: None,
    routes: RouteRules {
        check_topic: settings::check_routing_key,
        exchange_key: Some(settings::EXCHANGE),
        have_partitions: false,
        own_headers: &[("key", "the header key carries the ordering key on RabbitMQ")],
    },
    binding: CloudEventsBinding::Amqp,
    messaging: MessagingNames {
        routing_key: Some("messaging.rabbitmq.destination.routing_key"),
        ..MessagingNames::NONE
    },
    errors: fault::rows,
};

impl Broker for RabbitSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn exchange(&self) -> Option<&Template> {
        Some(&self.exchange)
    }

    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        Ok(Box::new(publish::open(self, check)?))
    }

    fn inspect(&self, required: &Requirements) -> Vec<Finding> {
        doctor::inspect(self, required)
    }

    fn prepare(&self, required: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        init::prepare(self, required, dry_run)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(dead_letters::open(self, dead_letters, from)?))
    }

    /// A stream deletes by age or size alone, whatever a record is.
    fn dead_letter_deletion<'a>(
        &'a self,
        dead_letters: &'a DeadLetterAddress,
        age: Duration,
    ) -> Result<DeleteBefore<'a>, Fault> {
        let (topic, vhost) = (&dead_letters.topic, quoted(&self.vhost));
        let pattern = quoted(&rights::pattern(&[topic.as_str()]));
        let max_age = format!("{{\"max-age\": \"{}s\"}}", age.as_secs());
        Err(Fault::new(
            Exit::Failed,
            NOT_PURGED,
            "RabbitMQ deletes records of a stream by their age only, open dead letters among them: nothing was deleted",
            format!("queue {topic}, virtual host {}", self.vhost),
            format!(
                "when nothing that old is open and no key is parked (walrelay dlq list --until {}s): rabbitmqctl set_policy -p {vhost} --apply-to queues walrelay-dead-letters {pattern} '{max_age}'; then, because it would go on to delete what reaches that age: rabbitmqctl clear_policy -p {vhost} walrelay-dead-letters. RabbitMQ removes whole segment files, and never the last one: a stream that is smaller than one (500 MB by default) keeps everything",
                age.as_secs(),
            ),
        ))
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

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;

//! A kind of broker, a configured broker of that kind, and what is asked of it before the first
//! event.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::error::{Exit, Fault};
use crate::base::event::CloudEventsBinding;
use crate::base::finding::Finding;
use crate::base::settings::kind::TOPIC;
use crate::base::settings::{SettingField, Values};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::{self, BenchTarget};
use crate::sink::log::{self, DeadLetterLog};
use crate::sink::publish::{ErrorRow, Sink};
use crate::sink::settings::{InvalidSetting, Surroundings};

/// Code of the fault of a broker that does not answer for now: waiting may help.
pub const UNREACHABLE: &str = "sink.unreachable";

/// Reads a section, and refuses what contradicts itself or a promise of the relay.
pub(crate) type Configure =
    fn(&Values, &Surroundings<'_>) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>>;

/// Everything that the rest of the relay knows about a kind of broker.
pub struct SinkKind {
    /// The value of `sink.kind`, and the name of its section.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// The keys of its section.
    pub(crate) keys: fn() -> Vec<SettingField>,
    pub(crate) configure: Configure,
    /// What `[route]` may say.
    pub(crate) routes: RouteRules,
    pub(crate) binding: CloudEventsBinding,
    /// Do its threads allocate from one malloc arena? That keeps memory small where one of them is
    /// busy; where several are, they wait for the arena's lock.
    pub(crate) shares_malloc_arena: bool,
    /// Every answer that it gives to a publish.
    pub(crate) errors: fn() -> Vec<ErrorRow>,
}

/// What a kind of broker asks of routes.
pub(crate) struct RouteRules {
    /// What is wrong with a topic that has no columns, and what to write instead.
    pub(crate) check_topic: fn(&str) -> Result<(), (String, String)>,
    /// Is the dead-letter topic one of the topics that events may go to? Then no route leads there.
    pub(crate) reach_dead_letters: bool,
    /// May an event ask for its partition?
    pub(crate) have_partitions: bool,
    /// Headers that the sink itself sets, and why.
    pub(crate) own_headers: &'static [(&'static str, &'static str)],
    /// The key of the section whose template says the exchange of each event.
    pub(crate) exchange_key: Option<&'static str>,
}

impl RouteRules {
    /// Topics are named as in Kafka.
    pub(crate) const KAFKA: RouteRules = RouteRules {
        check_topic: check_kafka_topic,
        reach_dead_letters: true,
        have_partitions: true,
        own_headers: &[],
        exchange_key: None,
    };
}

fn check_kafka_topic(topic: &str) -> Result<(), (String, String)> {
    if (TOPIC.holds)(topic) {
        return Ok(());
    }
    Err((format!("{topic:?} is no topic name"), format!("write {}", TOPIC.wanted)))
}

/// A configured broker.
pub trait Broker: Any + fmt::Debug + Send + Sync {
    /// Its entry in [`crate::sink::SINKS`].
    fn kind(&self) -> &'static SinkKind;

    /// Opens a sink. The first sink of a process gets a `check`: it fails unless the broker answers and
    /// has what is required. A later one, built after an outage, must not fail because the broker is
    /// still away.
    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>>;

    /// Finds what could keep events from arriving, without changing anything.
    fn inspect(&self, required: &Requirements) -> Vec<Finding>;

    /// Creates what is missing, and returns a line for each thing created.
    fn prepare(&self, required: &Requirements) -> Result<Vec<String>, Vec<Fault>>;

    /// Opens the dead-letter topic for reading.
    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: log::ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault>;

    /// The same broker, configured to publish to the bench target `name` and to require nothing else.
    fn for_bench_target(&self, _name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Err(bench_target::unsupported())
    }

    /// Creates the bench target `name` and starts a consumer on it.
    fn create_bench_target(&self, _name: &str) -> Result<Box<dyn BenchTarget>, Fault> {
        Err(bench_target::unsupported())
    }

    /// The commands with which a person removes the bench target.
    fn bench_target_removal(&self, _name: &str) -> String {
        String::new()
    }

    /// Removes the bench target; what does not exist is skipped.
    fn remove_bench_target(&self, _name: &str) -> Result<(), Fault> {
        Err(bench_target::unsupported())
    }
}

/// What [`Broker::open`] checks before the first event.
#[derive(Clone, Copy, Debug)]
pub struct StartupCheck<'a> {
    pub required: &'a Requirements,
    /// Set when the process is asked to stop: ends the wait for the broker.
    pub stop: &'a AtomicBool,
}

/// What must exist at the broker before the first event, as far as the configuration tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Kafka topics or RabbitMQ routing keys of routes whose templates have no columns.
    pub topics: Vec<String>,
    /// Topics that sampled rows lead to; only `check` fills them in. A missing one is a warning, and does
    /// not keep the relay from starting.
    pub from_rows: Vec<String>,
    /// The dead-letter topic; none if nothing is ever written to it.
    pub dead_letters: Option<DeadLetterAddress>,
}

/// Builds sinks; the first of them with a [`StartupCheck`].
#[must_use]
pub fn factory(
    broker: Arc<dyn Broker>,
    required: Requirements,
    stop: Arc<AtomicBool>,
) -> Box<dyn FnMut() -> Result<Box<dyn Sink>, Fault> + Send> {
    let mut first = true;
    Box::new(move || {
        let check = StartupCheck { required: &required, stop: &stop };
        let sink = broker.open(first.then_some(&check)).map_err(worst)?;
        first = false;
        Ok(sink)
    })
}

/// Returns the first of several faults, and logs the others.
pub(super) fn worst(faults: Vec<Fault>) -> Fault {
    let mut faults = faults.into_iter();
    let first = faults.next().unwrap_or_else(|| {
        Fault::new(Exit::Sink, "sink.refused", "no reason given", "sink", "walrelay check")
    });
    for other in faults {
        other.log();
    }
    first
}

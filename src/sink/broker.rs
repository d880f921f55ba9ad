//! A kind of broker, a configured broker of that kind, and what is asked of it before the first
//! event.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::error::{Exit, Fault};
use crate::base::event::CloudEventsBinding;
use crate::base::settings::kind::TOPIC;
use crate::base::settings::{SettingField, Values};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::{self, Scratch};
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

/// A configured broker: the way to it, and what can be asked of it before the first event.
pub trait Broker: Any + fmt::Debug + Send + Sync {
    /// Its entry in [`crate::sink::SINKS`].
    fn kind(&self) -> &'static SinkKind;

    /// A sink. The first of a process is opened with `first`, and must find its broker and what
    /// is wanted there; a later one, built after an outage, must not insist.
    fn open(&self, first: Option<&First<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>>;

    /// What could keep events from arriving, found without changing anything.
    fn inspect(&self, wanted: &Wanted) -> Inspection;

    /// Makes what is missing; says what it made.
    fn prepare(&self, wanted: &Wanted) -> Result<Vec<String>, Vec<Fault>>;

    /// The dead-letter topic as a log.
    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: log::ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault>;

    /// The same broker, with a scratch destination of that name as all that is wanted there.
    fn toward_scratch(&self, _name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Err(bench_target::impossible())
    }

    /// Makes a scratch destination and begins to read it.
    fn make_scratch(&self, _name: &str) -> Result<Box<dyn Scratch>, Fault> {
        Err(bench_target::impossible())
    }

    /// The commands that remove it by hand.
    fn scratch_by_hand(&self, _name: &str) -> String {
        String::new()
    }

    /// Removes it, as far as it is there.
    fn remove_scratch(&self, _name: &str) -> Result<(), Fault> {
        Err(bench_target::impossible())
    }
}

/// What the first sink of a process looks for.
#[derive(Clone, Copy, Debug)]
pub struct First<'a> {
    /// What must be there.
    pub wanted: &'a Wanted,
    /// Ends the wait for the broker.
    pub stop: &'a AtomicBool,
}

/// What must be there before the first event, as far as it is known without a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Kafka topics, RabbitMQ routing keys: those of routes without columns.
    pub topics: Vec<String>,
    /// The same of routes with columns, as far as rows were looked at: for `check` only. What is missing
    /// of them is told, and does not keep the relay from starting.
    pub from_rows: Vec<String>,
    /// The dead-letter topic, unless nothing is ever written to it.
    pub dead_letters: Option<DeadLetterAddress>,
}

/// What was found at a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// What is as it should be, a sentence each.
    pub well: Vec<String>,
    /// What works and may surprise, or cannot be known.
    pub doubtful: Vec<String>,
    /// What must be mended.
    pub faults: Vec<Fault>,
}

/// Builds sinks, the first with a look at what is `wanted`. `stop` ends the wait for the broker.
#[must_use]
pub fn factory(
    broker: Arc<dyn Broker>,
    wanted: Wanted,
    stop: Arc<AtomicBool>,
) -> Box<dyn FnMut() -> Result<Box<dyn Sink>, Fault> + Send> {
    let mut first = true;
    Box::new(move || {
        let look = First { wanted: &wanted, stop: &stop };
        let sink = broker.open(first.then_some(&look)).map_err(worst)?;
        first = false;
        Ok(sink)
    })
}

/// The first of several faults, with the others told in passing.
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

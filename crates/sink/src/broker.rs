//! Traits by which the rest of the relay knows a kind of broker, and a configured broker of that
//! kind.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::bench_target::{self, BenchTarget};
use crate::log::{self, DeadLetterLog};
use crate::search::{SearchReport, SearchScope, TakeRecord};
use crate::settings::{InvalidSetting, Surroundings};
use crate::topic_reader::TopicReader;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::event::{CloudEventsBinding, MessagingNames};
use walrelay_base::finding::Finding;
use walrelay_base::settings::kind::TOPIC;
use walrelay_base::settings::{Settings, Visit};
use walrelay_base::template::Template;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_core::sink::publish::{ErrorRow, Sink};

pub use walrelay_core::sink::UNREACHABLE;

/// The code of a fault: old dead letters were not deleted.
pub const NOT_PURGED: &str = "dead-letter.not-purged";

/// Deletes the records that stand before these offsets, by partition.
pub type DeleteBefore<'a> = Box<dyn FnOnce(&BTreeMap<i32, i64>) -> Result<(), Fault> + 'a>;

/// Makes a broker of a section that was read.
pub type Configure =
    Box<dyn FnOnce(&Surroundings<'_>) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>>>;

/// The section of a kind of broker.
pub trait SinkSettings: Settings + 'static {
    /// Fills in what follows from the section. Returns settings that contradict each other, another section
    /// or a promise.
    fn complete(&mut self, around: &Surroundings<'_>) -> Vec<InvalidSetting>;

    /// The broker of these settings.
    fn into_broker(self) -> Arc<dyn Broker>;
}

pub fn read_section<S: SinkSettings>(at: &mut Visit) -> Configure {
    let mut settings = S::read(at);
    Box::new(move |around| match settings.complete(around) {
        invalid if invalid.is_empty() => Ok(settings.into_broker()),
        invalid => Err(invalid),
    })
}

pub struct SinkKind {
    /// The value of `sink.kind`, and the name of its section.
    pub name: &'static str,
    /// As messages call it.
    pub title: &'static str,
    /// Consumers may have dead-letter topics of their own beside the relay's.
    pub serves_consumers: bool,
    /// Whether [`Broker::log`] reads dead letters; otherwise `dlq` cannot, and no key can be parked.
    pub reads_dead_letters: bool,
    /// Reads its section.
    pub read: fn(&mut Visit) -> Configure,
    /// Its file of the folder `config`.
    pub example: Option<&'static str>,
    /// Name and version of a client library that is not Rust.
    pub client: Option<fn() -> String>,
    pub routes: RouteRules,
    pub binding: CloudEventsBinding,
    pub messaging: MessagingNames,
    /// Its rows of docs/errors.md.
    pub errors: fn() -> Vec<ErrorRow>,
}

/// The rules of a kind of broker for `[route]`.
pub struct RouteRules {
    /// Checks a topic without columns; the error is what is wrong and what to write instead.
    pub check_topic: fn(&str) -> Result<(), (String, String)>,
    /// The key of its section that names the exchange of events. Without such a key, or where its value is empty
    /// (the default exchange), events and dead letters share a namespace: no route may lead to the topic of
    /// the dead letters.
    pub exchange_key: Option<&'static str>,
    pub have_partitions: bool,
    /// Headers that the sink sets itself, each with the reason.
    pub own_headers: &'static [(&'static str, &'static str)],
}

impl RouteRules {
    pub const KAFKA: RouteRules = RouteRules {
        check_topic: check_kafka_topic,
        exchange_key: None,
        have_partitions: true,
        own_headers: &[],
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
    /// Its entry in [`SINKS`].
    fn kind(&self) -> &'static SinkKind;

    /// The key `exchange` of its section, where events are published to an exchange.
    fn exchange(&self) -> Option<&Template> {
        None
    }

    /// Opens a sink. The first sink of a process gets a `check`: it fails unless the broker answers
    /// and has what is required. A later one, built after an outage, must not fail because the
    /// broker is still away.
    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>>;

    /// Finds what could keep events from arriving, without changing anything.
    fn inspect(&self, required: &Requirements) -> Vec<Finding>;

    /// Creates what is missing, and returns a line for each thing created. A dry run creates nothing: it
    /// returns what would be created, and the faults that the broker would report.
    fn prepare(&self, required: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>>;

    /// Opens the dead-letter topic for reading.
    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: log::ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault>;

    /// The deletion of records of the dead-letter topic; it deletes nothing before it is called. Fails where
    /// the broker can never do that; `age` is that of the youngest record that should go.
    fn dead_letter_deletion<'a>(
        &'a self,
        dead_letters: &'a DeadLetterAddress,
        _age: Duration,
    ) -> Result<DeleteBefore<'a>, Fault> {
        Err(Fault::new(
            Exit::Failed,
            NOT_PURGED,
            format!("{} cannot delete single records: nothing was deleted", self.kind().title),
            format!("dead letters in {}", dead_letters.topic),
            "stop the relay, and move all dead letters away when none is open and no key is parked",
        ))
    }

    /// The reader that finds which events a topic holds already; none where published events cannot
    /// be read without taking them away.
    fn topic_reader(&self) -> Result<Option<Box<dyn TopicReader>>, Fault> {
        Ok(None)
    }

    /// Passes the records that may be the events looked for to `take`.
    fn search(&self, _scope: &SearchScope<'_>, _take: &mut TakeRecord<'_>) -> SearchReport {
        let title = self.kind().title;
        SearchReport::not_possible(format!("{title} is not searched: only topics of Kafka are"))
    }

    /// The same broker, configured to publish to the
    /// bench target `name` and to require nothing else.
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

/// The checks that [`Broker::open`] makes before the first event.
#[derive(Clone, Copy, Debug)]
pub struct StartupCheck<'a> {
    pub required: &'a Requirements,
    /// Set when the process is asked to stop: ends the wait for the broker.
    pub stop: &'a AtomicBool,
}

/// The topics, exchanges and queues that must exist at the broker before the first event, as far as
/// the configuration names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Kafka topics or RabbitMQ routing keys of routes whose templates have no columns.
    pub topics: Vec<String>,
    /// Topics to which the rows that `check` samples lead. A missing one is a warning and does not keep the
    /// relay from starting.
    pub from_rows: Vec<String>,
    /// The topic is that of an event that is replayed, to which a row has led; only a replay sets it.
    pub is_replay: bool,
    /// Rows could not be read, so that `from_rows` may lack topics; only `check` sets it.
    pub rows_unread: bool,
    /// The dead-letter topic; none if nothing is ever written to it.
    pub dead_letters: Option<DeadLetterAddress>,
    /// A new process reads what the topics hold, where it may; see [`Broker::topic_reader`].
    pub read_back: bool,
    /// Events may get a header more if they have room for it; see [`Sink::has_room_for`].
    pub adds_context: bool,
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
pub fn worst(faults: Vec<Fault>) -> Fault {
    let mut faults = faults.into_iter();
    let first = faults.next().unwrap_or_else(|| {
        Fault::new(Exit::Sink, "sink.refused", "no reason given", "sink", "walrelay check")
    });
    for other in faults {
        other.log();
    }
    first
}

//! Brokers. A sink has never heard of Postgres: it takes an event under a number and tells later,
//! under the same number, what became of it.
//!
//! A sink lives on the data thread and never blocks it. It fails closed: what it does not report
//! as confirmed is unconfirmed.
//!
//! A new sink is one folder and one line in [`SINKS`]; the conformance suite runs over all of them.

pub mod bench_target;
pub mod kafka;
mod key_lanes;
pub mod log;
pub mod memory;
pub mod rabbitmq;
pub mod settings;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::log::DeadLetterLog;
use self::settings::{Misfit, Section};
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterAddress, DeadLetterCause, DeadLetterWriter};
use crate::sink::bench_target::Scratch;

/// Code of the fault of a broker that does not answer for now: waiting may help.
pub const UNREACHABLE: &str = "sink.unreachable";

/// Where events go.
pub trait Sink {
    /// Hands an event over. What comes back later under `sequence` is its receipt. Events of one
    /// key that are handed over in order must be kept in order by the sink, through its own retries
    /// and whatever their destinations.
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused>;

    /// Collects receipts and news, waiting at most `patience` for the first.
    fn poll(&mut self, patience: Duration, news: &mut Vec<News>);

    /// The same for an event that was [`News::Suspect`]: what comes back must be about it alone.
    fn publish_alone(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        self.publish(sequence, event)
    }

    /// The same for a dead letter, or what resolves one: it must never be impossible, so what the
    /// broker cannot carry of it is cut.
    fn publish_letter(&mut self, sequence: Sequence, letter: &Outbound<'_>) -> Result<(), Refused> {
        self.publish_alone(sequence, letter)
    }

    /// Does it hold events back that are sent from [`Sink::poll`] once others are answered? Then it
    /// wants to be polled more often.
    fn holds_back(&self) -> bool {
        false
    }

    /// Publishes once more what has failed under `sequence`. The sink has kept it, and later events
    /// of its key wait for it.
    fn retry(&mut self, sequence: Sequence);

    /// Publishes the dead letter of what has failed under `sequence` in its place; its receipt
    /// comes under the same number. When the cause parks the key, what waits behind it comes back
    /// as failed, in order, with the class [`crate::dead_letter::writer::CLASS_PARKED`].
    fn bury(&mut self, sequence: Sequence, mailbox: &DeadLetterWriter, cause: &DeadLetterCause);
}

/// The sink did not take an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its queue is full; try again after the next receipts.
    Full,
    /// It will not take it.
    Failed(Failure),
}

/// What a sink has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The broker has this event for good.
    Confirmed(Sequence),
    /// The broker does not have this event; the sink keeps it for [`Sink::retry`] or
    /// [`Sink::bury`].
    Failed(Sequence, Failure),
    /// This event was refused together with others, and perhaps because of them: it must be
    /// published alone before it is blamed. The sink is broken.
    Suspect(Sequence),
    /// The broker answers (again).
    Reachable,
    /// The broker does not answer; events wait.
    Unreachable(String),
    /// The sink can no longer say what became of anything in flight: build a new one.
    Broken(String),
    /// With these settings no event will ever pass, and a new sink would tell the same.
    Unable(Failure),
}

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub disposition: Disposition,
    /// Is it an answer that this release knows?
    pub known: bool,
    /// Ordering key of the event, where it has one.
    pub key: Option<Box<[u8]>>,
    /// Stable name, e.g. `kafka.message-size-too-large`.
    pub class: String,
    /// Which event, as far as the sink can tell.
    pub subject: String,
    /// For people.
    pub reason: String,
    /// What mends it.
    pub mend: String,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The broker is unwell: no attempt is counted, everything unsettled is published again.
    Outage,
    /// This event may pass later.
    Transient,
    /// This event will never pass.
    Terminal,
    /// No event will pass with these settings, and waiting mends nothing: the relay stops.
    Halt,
}

impl fmt::Display for Disposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disposition::Outage => "outage",
            Disposition::Transient => "transient",
            Disposition::Terminal => "terminal",
            Disposition::Halt => "halt",
        })
    }
}

/// An answer that a broker may give to a publish, and what follows from it: a line of
/// `docs/errors.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// As the protocol or the client library numbers or names it.
    pub code: String,
    /// For people.
    pub description: String,
    /// [`Failure::class`].
    pub class: String,
    /// [`Failure::disposition`].
    pub disposition: Disposition,
}

/// A configured broker: the way to it, and what can be asked of it before the first event.
pub trait Broker: Any + fmt::Debug + Send + Sync {
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

    /// Do its threads allocate from one malloc arena? That keeps memory small where one of them is
    /// busy; where several are, they wait for the arena's lock.
    fn shares_malloc_arena(&self) -> bool {
        true
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

/// Reads a section.
pub type Configure = fn(&dyn Section) -> Result<Arc<dyn Broker>, Vec<Misfit>>;

/// A kind of broker.
pub struct Kind {
    /// The value of `sink.kind`, and the name of its section.
    pub name: &'static str,
    /// Reads the section `[sink.NAME]`.
    pub configure: Configure,
    /// Every answer that it gives to a publish.
    pub errors: fn() -> Vec<ErrorRow>,
}

/// Every kind there is.
pub const SINKS: &[Kind] = &[
    Kind { name: "kafka", configure: kafka::configure, errors: kafka::errors },
    Kind {
        name: "rabbitmq",
        configure: rabbitmq::broker::configure,
        errors: rabbitmq::broker::errors,
    },
    Kind { name: "memory", configure: memory::configure, errors: Vec::new },
];

/// The table of `docs/errors.md`.
#[must_use]
pub fn errors_table() -> String {
    let mut table =
        "| Sink | Code | What the broker or its client says | Class | Consequence |\n|---|---|---|---|---|\n"
            .to_owned();
    for kind in SINKS {
        for row in (kind.errors)() {
            let ErrorRow { code, description, class, disposition } = row;
            table += &format!(
                "| {} | `{code}` | {description} | `{class}` | {disposition} |\n",
                kind.name
            );
        }
    }
    table
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
fn worst(faults: Vec<Fault>) -> Fault {
    let mut faults = faults.into_iter();
    let first = faults.next().unwrap_or_else(|| {
        Fault::new(Exit::Sink, "sink.refused", "no reason given", "sink", "walrelay check")
    });
    for other in faults {
        other.log();
    }
    first
}

//! Brokers. A sink has never heard of Postgres: it takes an event under a number and tells later,
//! under the same number, what became of it.
//!
//! A sink lives on the data thread and never blocks it. It fails closed: what it does not report
//! as confirmed is unconfirmed.

pub mod kafka;
pub mod null;
pub mod settings;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::settings::SinkSettings;
use crate::error::{Exit, Fault};
use crate::message::{Outbound, Sequence};

/// Where events go.
pub trait Sink {
    /// Hands an event over. What comes back later under `sequence` is its receipt. Events of one
    /// key that are handed over in order must be kept in order by the sink, through its own retries.
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused>;

    /// Collects receipts and news, waiting at most `patience` for the first.
    fn poll(&mut self, patience: Duration, news: &mut Vec<News>);
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
    /// The broker does not, or may not, have this event.
    Failed(Sequence, Failure),
    /// The broker answers (again).
    Reachable,
    /// The broker does not answer; events wait.
    Unreachable(String),
    /// The sink can no longer say what became of anything in flight: build a new one.
    Broken(String),
}

/// Why an event was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub disposition: Disposition,
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
}

/// Builds sinks of the configured kind. The first must find its broker and `topics`; a later one,
/// built after an outage, must not insist. `stop` ends the wait for the broker.
#[must_use]
pub fn factory(
    settings: SinkSettings,
    topics: Vec<String>,
    stop: Arc<AtomicBool>,
) -> Box<dyn FnMut() -> Result<Box<dyn Sink>, Fault> + Send> {
    let mut first = true;
    Box::new(move || match &settings {
        SinkSettings::Null => Ok(Box::new(null::NullSink::default()) as Box<dyn Sink>),
        SinkSettings::Kafka(kafka) => {
            let mut sink = kafka::KafkaSink::new(kafka).map_err(|reason| refused(&reason))?;
            if std::mem::take(&mut first) {
                kafka::preflight::inspect(&mut sink, kafka, &topics, &stop).map_err(worst)?;
            }
            Ok(Box::new(sink) as Box<dyn Sink>)
        }
    })
}

/// The first of several faults, with the others told in passing.
fn worst(faults: Vec<Fault>) -> Fault {
    let mut faults = faults.into_iter();
    let first = faults.next().unwrap_or_else(|| refused("no reason given"));
    for other in faults {
        tracing::error!("{other}");
    }
    first
}

fn refused(reason: &str) -> Fault {
    Fault::new(
        Exit::Usage,
        "sink.refused-property",
        format!("librdkafka refuses the configuration: {reason}"),
        "sink.kafka.properties",
        "correct the property; its names and values are those of librdkafka's CONFIGURATION.md",
    )
}

//! Metrics of the inbox. No label takes a value from a message.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use crate::Settings;
use crate::decision::Outcome;
use crate::hold::HoldReason;
use crate::time::short;

const SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The metrics of one consumer. Its name is the constant label `consumer`, so that several
/// consumers of a process can share a registry.
#[derive(Clone)]
pub(crate) struct Metrics {
    messages: IntCounterVec,
    processing_seconds: Histogram,
    duplicates: IntCounter,
    retries: IntCounterVec,
    dead_letters: IntCounter,
    held_lanes: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(settings: &Settings) -> prometheus::Result<Metrics> {
        let opts = |name: &str, help: &str| {
            Opts::new(name, help).const_label("consumer", settings.service.clone())
        };
        let buckets = SECONDS.to_vec();
        let seconds =
            opts("consumer_processing_seconds", "One attempt, from BEGIN to commit or rollback.");
        let metrics = Metrics {
            messages: IntCounterVec::new(
                opts("consumer_messages_total", "Messages that were settled, by outcome."),
                &["outcome"],
            )?,
            processing_seconds: Histogram::with_opts(HistogramOpts {
                common_opts: seconds,
                buckets,
            })?,
            duplicates: IntCounter::with_opts(opts(
                "consumer_duplicates_total",
                "Repetitions that were recognised and acknowledged.",
            ))?,
            retries: IntCounterVec::new(
                opts("consumer_retries_total", "Failed messages sent to a retry level."),
                &["level"],
            )?,
            dead_letters: IntCounter::with_opts(opts(
                "consumer_dlq_published_total",
                "Messages that were settled as dead letters.",
            ))?,
            held_lanes: IntGaugeVec::new(
                opts("consumer_held_lanes", "Lanes that wait for something to pass, by reason."),
                &["reason"],
            )?,
        };
        for outcome in Outcome::ALL {
            metrics.messages.with_label_values(&[outcome.name()]).inc_by(0);
        }
        for level in &settings.levels {
            metrics.retries.with_label_values(&[short(*level)]).inc_by(0);
        }
        for reason in HoldReason::ALL {
            metrics.held_lanes(reason).set(0);
        }
        if let Some(registry) = &settings.registry {
            registry.register(Box::new(metrics.clone()))?;
        }
        Ok(metrics)
    }

    fn all(&self) -> [&dyn Collector; 6] {
        let Metrics { messages, processing_seconds, duplicates, .. } = self;
        let Metrics { retries, dead_letters, held_lanes, .. } = self;
        [messages, processing_seconds, duplicates, retries, dead_letters, held_lanes]
    }

    /// A message was settled.
    pub(crate) fn settled(&self, outcome: Outcome) {
        self.messages.with_label_values(&[outcome.name()]).inc();
        match outcome {
            Outcome::Duplicate => self.duplicates.inc(),
            Outcome::DeadLettered => self.dead_letters.inc(),
            Outcome::Processed | Outcome::Deferred | Outcome::Retried => {}
        }
    }

    pub(crate) fn retried(&self, level: Duration) {
        self.retries.with_label_values(&[short(level)]).inc();
    }

    pub(crate) fn held_lanes(&self, reason: HoldReason) -> IntGauge {
        self.held_lanes.with_label_values(&[reason.name()])
    }

    pub(crate) fn processed_in(&self, took: Duration) {
        self.processing_seconds.observe(took.as_secs_f64());
    }
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

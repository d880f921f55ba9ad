//! Metrics of the inbox. No label takes a value from a message.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::Settings;
use crate::decision::Outcome;
use crate::hold::HoldReason;

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
                "Dead letters that the broker has confirmed.",
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
            metrics.retries.with_label_values(&[&level.name]).inc_by(0);
        }
        for reason in HoldReason::ALL {
            metrics.held_lanes(reason).set(0);
        }
        if let Some(registry) = &settings.registry {
            metrics.register(registry)?;
        }
        Ok(metrics)
    }

    fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        self.collectors().into_iter().try_for_each(|metric| registry.register(metric))
    }

    pub(crate) fn unregister(&self, registry: &Registry) {
        for metric in self.collectors() {
            let _known = registry.unregister(metric).is_ok();
        }
    }

    fn collectors(&self) -> [Box<dyn Collector>; 6] {
        [
            Box::new(self.messages.clone()),
            Box::new(self.processing_seconds.clone()),
            Box::new(self.duplicates.clone()),
            Box::new(self.retries.clone()),
            Box::new(self.dead_letters.clone()),
            Box::new(self.held_lanes.clone()),
        ]
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

    pub(crate) fn retried(&self, level: &str) {
        self.retries.with_label_values(&[level]).inc();
    }

    pub(crate) fn held_lanes(&self, reason: HoldReason) -> IntGauge {
        self.held_lanes.with_label_values(&[reason.name()])
    }

    pub(crate) fn processed_in(&self, took: Duration) {
        self.processing_seconds.observe(took.as_secs_f64());
    }
}

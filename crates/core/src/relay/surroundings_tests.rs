//! The surroundings that unit tests of the loop share: a clock that goes on only while somebody
//! waits, the facts that the loop shows, a broker in memory, and the parts of a loop that has them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::ports::{Clock, Counter, Gauge, Meters, PassMeter, Recorder};
use super::state_file::StateFile;
use super::stops::tests::Site;
use super::testing::BROKER;
use super::{Parts, ReadBack};
use crate::base::clock::Moment;
use crate::base::event::{Outbound, Sequence};
use crate::base::lsn::Lsn;
use crate::base::random::Random;
use crate::dead_letter::tail_event::ReadRequests;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::delivery::settings::DeliverySettings;
use crate::health::Pass;
use crate::metrics::{Ignored, KnownFrom, Stage};
use crate::outbox::settings::OutboxTable;
use crate::sink::{PublishError, Sink, SinkReport};
use crate::source::settings::SourceSettings;
use crate::testing::dead_letter_writer;
use crate::trace::event_spans::EventSpans;

/// A clock that goes on only while somebody waits.
pub(super) struct Ticks {
    pub(super) began: Instant,
    passed_us: AtomicU64,
}

impl Ticks {
    pub(super) fn since(began: Instant) -> Arc<Ticks> {
        Arc::new(Ticks { began, passed_us: AtomicU64::new(0) })
    }
}

impl Clock for Ticks {
    fn now(&self) -> Moment {
        let passed_us = self.passed_us.load(Ordering::Relaxed);
        let instant = self.began + Duration::from_micros(passed_us);
        Moment { instant, unix_us: 5_000_000 + passed_us as i64 }
    }

    fn sleep(&self, length: Duration) {
        self.passed_us.fetch_add(length.as_micros() as u64, Ordering::Relaxed);
    }
}

/// The numbers and facts that the loop shows, each in its order.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) counts: Vec<(Counter, u64)>,
    pub(super) gauges: Vec<(Gauge, u64)>,
    pub(super) stages: Vec<Stage>,
    pub(super) known: Vec<KnownFrom>,
    pub(super) ignored: Vec<Ignored>,
    /// The other calls of the pass meter, and the acts that a test adds.
    pub(super) acts: Vec<String>,
    pub(super) passes: Vec<Pass>,
    pub(super) notes: Vec<String>,
    pub(super) server_lsn: Lsn,
}

impl Facts {
    pub(super) fn gauge(&self, gauge: Gauge) -> Option<u64> {
        self.gauges.iter().rev().find(|(it, _)| *it == gauge).map(|(_, value)| *value)
    }
}

/// Takes what was counted since the last call.
pub(super) fn take_counts(facts: &Mutex<Facts>) -> Vec<(Counter, u64)> {
    std::mem::take(&mut facts.lock().unwrap().counts)
}

impl Meters for Mutex<Facts> {
    fn count(&self, counter: Counter, by: u64) {
        self.lock().unwrap().counts.push((counter, by));
    }

    fn set(&self, gauge: Gauge, value: u64) {
        self.lock().unwrap().gauges.push((gauge, value));
    }
}

impl PassMeter for Arc<Mutex<Facts>> {
    fn published(&mut self, _: i64, _: i64) {}

    fn dead_lettered(&mut self) {
        self.lock().unwrap().acts.push("dead-lettered".to_owned());
    }

    fn known(&mut self, from: KnownFrom) {
        self.lock().unwrap().known.push(from);
    }

    fn retried(&mut self) {
        self.lock().unwrap().acts.push("retried".to_owned());
    }

    fn ignored(&mut self, why: Ignored) {
        self.lock().unwrap().ignored.push(why);
    }

    fn stage(&mut self, stage: Stage, _: Duration) {
        self.lock().unwrap().stages.push(stage);
    }

    fn flush(&mut self) {
        self.lock().unwrap().acts.push("flush".to_owned());
    }
}

impl Recorder for Arc<Mutex<Facts>> {
    fn pass(&mut self, pass: &Pass, _: Instant) {
        self.lock().unwrap().passes.push(*pass);
    }

    fn note(&mut self, sentence: &str) {
        self.lock().unwrap().notes.push(sentence.to_owned());
    }

    fn server_lsn(&self) -> Lsn {
        self.lock().unwrap().server_lsn
    }
}

/// A broker, and the calls that its sinks got.
#[derive(Default)]
pub(super) struct Broker {
    /// The ids of the events, and the dead letters, in their order.
    pub(super) taken: Vec<String>,
    /// How the next event is refused.
    pub(super) refusal: Option<PublishError>,
    pub(super) reports: Vec<SinkReport>,
    pub(super) withdrawals: u32,
    pub(super) is_another: bool,
}

impl Sink for Arc<Mutex<Broker>> {
    fn publish(&mut self, _: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        let mut broker = self.lock().unwrap();
        if let Some(refusal) = broker.refusal.take() {
            return Err(refusal);
        }
        broker.taken.push(event.id.to_owned());
        Ok(())
    }

    fn publish_dead_letter(&mut self, _: Sequence, it: &Outbound<'_>) -> Result<(), PublishError> {
        self.lock().unwrap().taken.push(format!("letter of {}", it.id));
        Ok(())
    }

    fn poll(&mut self, _: Instant, _: Duration, reports: &mut Vec<SinkReport>) {
        reports.append(&mut self.lock().unwrap().reports);
    }

    fn withdraw(&mut self, _: Instant, _: &mut Vec<SinkReport>) {
        self.lock().unwrap().withdrawals += 1;
    }

    fn broker(&mut self) -> u64 {
        BROKER + u64::from(self.lock().unwrap().is_another)
    }

    fn retry(&mut self, _: Sequence) {}

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        _: &DeadLetterWriter,
        _: &DeadLetterCause,
    ) {
        self.lock().unwrap().taken.push(format!("letter in place of {sequence}"));
    }
}

/// The parts of a loop that has no state file and reads no dead letters.
pub(super) fn parts<S>(clock: &Arc<Ticks>, facts: &Arc<Mutex<Facts>>, sink: S) -> Parts
where
    S: Sink + Clone + Send + 'static,
{
    let outboxes = vec![OutboxTable::default()];
    Parts {
        source: SourceSettings { outboxes, ..SourceSettings::default() },
        delivery: DeliverySettings::default(),
        read_back: ReadBack::default(),
        sink_factory: Box::new(move || Ok(Box::new(sink.clone()) as Box<dyn Sink>)),
        dead_letter_writer: dead_letter_writer(1024),
        spans: EventSpans::default(),
        tail_events: None,
        tail_requests: ReadRequests::default(),
        stops: Arc::new(Site::new().stops(false, false, true)),
        flags: Arc::default(),
        state_file: StateFile::default(),
        meters: Arc::clone(facts) as Arc<dyn Meters>,
        pass_meter: Box::new(Arc::clone(facts)),
        recorder: Box::new(Arc::clone(facts)),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        random: Random::new(1),
    }
}

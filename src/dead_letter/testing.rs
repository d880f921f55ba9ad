//! A dead-letter topic at the memory broker, and a clock that only goes on when it is looked at.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::Level;
use tracing_subscriber::filter::Targets;
use walrelay_core::base::clock::Moment;

use crate::base::error::Fault;
use crate::base::event::{Outbound, Position, Sequence};
use crate::base::finding::Finding;
use crate::base::log::AUDIT;
use crate::base::log::testing::{TEXT, written};
use crate::base::lsn::Lsn;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::writer::{
    DeadLetterAddress, DeadLetterCause, DeadLetterSettings, DeadLetterWriter, SystemId,
};
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};
use crate::sink::testing::{Arrived, MemoryBroker};
use crate::sink::{
    Broker, Disposition, Failure, PublishError, Requirements, Sink, SinkKind, SinkReport,
    StartupCheck,
};

pub(super) const SECOND: i64 = 1_000_000;
/// When the first letter was given up.
pub(super) const BEGAN: i64 = 1_000 * SECOND;

/// A dead letter to be written.
#[derive(Clone, Copy)]
pub(crate) struct Spec<'a> {
    pub(crate) id: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) topic: &'a str,
    pub(crate) class: &'a str,
    pub(crate) system: &'a str,
    pub(crate) value: &'a str,
    pub(crate) failed_unix_us: i64,
    pub(crate) parks_key: bool,
    pub(crate) incomplete: bool,
    pub(crate) ordinal: u64,
    pub(crate) value_bytes_max: usize,
}

impl Default for Spec<'_> {
    fn default() -> Self {
        Spec {
            id: "e",
            key: Some("k"),
            topic: "orders",
            class: "unroutable",
            system: "7000",
            value: "payload",
            failed_unix_us: BEGAN,
            parks_key: false,
            incomplete: false,
            ordinal: 0,
            value_bytes_max: 16,
        }
    }
}

/// Writes a dead letter as the relay `relay` would.
pub(crate) fn write(sink: &mut dyn Sink, spec: Spec<'_>) {
    let value_bytes_max = spec.value_bytes_max;
    let settings = DeadLetterSettings { value_bytes_max, ..DeadLetterSettings::default() };
    let system = SystemId::default();
    system.learn(spec.system);
    let writer = DeadLetterWriter { settings, relay: "relay".to_owned(), system };
    let cause = DeadLetterCause {
        class: spec.class.to_owned(),
        reason: "nobody wants it".to_owned(),
        attempts: 5,
        first_failed_unix_us: spec.failed_unix_us,
        failed_unix_us: spec.failed_unix_us,
        position: Position { commit_lsn: Lsn::from_wire(1), ordinal: spec.ordinal },
        incomplete: spec.incomplete,
        parks_key: spec.parks_key,
    };
    let event = Outbound {
        topic: spec.topic,
        key: spec.key.map(str::as_bytes),
        value: Some(spec.value.as_bytes()),
        id: spec.id,
        headers: &[("id", spec.id.as_bytes())],
        commit_unix_us: 1,
        ..Outbound::default()
    };
    writer.compose(&event, &cause, |letter| sink.publish(0, letter).unwrap());
}

pub(super) struct TopicFixture {
    pub(super) broker: MemoryBroker,
    address: DeadLetterAddress,
    pub(super) stop: AtomicBool,
    began: Instant,
    now: Cell<i64>,
}

impl TopicFixture {
    pub(super) fn new() -> TopicFixture {
        let broker = MemoryBroker::default();
        TopicFixture {
            broker,
            address: DeadLetterSettings::default().address,
            stop: AtomicBool::new(false),
            began: Instant::now(),
            now: Cell::new(BEGAN),
        }
    }

    pub(super) fn topic(&self) -> DeadLetterTopic<'_> {
        DeadLetterTopic::of_relay(&self.broker, &self.address, &self.stop)
    }

    /// The same topic at another broker.
    pub(super) fn topic_at<'a>(&'a self, broker: &'a dyn Broker) -> DeadLetterTopic<'a> {
        DeadLetterTopic { broker, ..self.topic() }
    }

    /// The same broker with a flaw.
    pub(super) fn flawed(&self, flaw: Flaw) -> Flawed {
        Flawed {
            inner: self.broker.clone(),
            flaw,
            sinks: AtomicUsize::new(0),
            logs: AtomicUsize::new(0),
            polls: Mutex::default(),
            inspections: AtomicUsize::new(0),
            most_at_once: Arc::default(),
        }
    }

    /// Ten milliseconds later each time.
    pub(super) fn clock(&self) -> Moment {
        self.later(10_000)
    }

    /// A second later each time.
    pub(super) fn fast_clock(&self) -> Moment {
        self.later(SECOND)
    }

    fn later(&self, by_us: i64) -> Moment {
        self.now.set(self.now.get() + by_us);
        let elapsed = Duration::from_micros(self.elapsed_us().unsigned_abs());
        Moment { instant: self.began + elapsed, unix_us: self.now.get() }
    }

    pub(super) fn elapsed_us(&self) -> i64 {
        self.now.get() - BEGAN
    }

    pub(super) fn write(&self, spec: Spec<'_>) {
        self.deliver(|sink| write(sink, spec));
    }

    /// `count` letters `e0`, `e1`, ... of the keys 0 to 4, a second apart.
    pub(super) fn write_many(&self, count: i64) {
        for n in 0..count {
            let (id, key) = (format!("e{n}"), (n % 5).to_string());
            let failed_unix_us = BEGAN + n * SECOND;
            self.write(Spec { id: &id, key: Some(&key), failed_unix_us, ..Spec::default() });
        }
    }

    /// Writes a record with these headers.
    pub(super) fn publish(&self, headers: &[(&str, &[u8])]) {
        let topic = &self.address.topic;
        let record = Outbound { topic, headers, commit_unix_us: BEGAN, ..Outbound::default() };
        self.deliver(|sink| sink.publish(0, &record).unwrap());
    }

    fn deliver(&self, publish: impl FnOnce(&mut dyn Sink)) {
        let mut sink = self.broker.open(None).unwrap();
        publish(&mut *sink);
        sink.poll(Instant::now(), Duration::ZERO, &mut Vec::new());
    }

    /// Event ids that have arrived at a topic, in order.
    pub(super) fn ids(&self, topic: &str) -> Vec<String> {
        let arrived = self.broker.arrived().into_iter().filter(|event| event.topic == topic);
        arrived.map(|event| event.id).collect()
    }

    /// The records that were written to the log behind the first `letters`.
    pub(super) fn written_behind(&self, letters: usize) -> Vec<Arrived> {
        let arrived = self.broker.arrived().into_iter();
        arrived.filter(|event| event.topic == self.address.topic).skip(letters).collect()
    }

    /// Open letters.
    pub(super) fn open(&self) -> usize {
        let stop = AtomicBool::new(false);
        let topic = DeadLetterTopic { stop: &stop, ..self.topic() };
        topic.index(&super::filter::DeadLetterFilter::default()).unwrap().open()
    }
}

pub(super) fn failure() -> Failure {
    Failure {
        disposition: Disposition::Transient,
        known: true,
        key: None,
        class: "rabbitmq.no-route".to_owned(),
        subject: "orders".to_owned(),
        reason: "no queue is bound".to_owned(),
        mend: "bind one".to_owned(),
    }
}

pub(super) fn header(event: &Arrived, name: &str) -> Option<String> {
    let found = event.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

/// The flaw of a broker. A replay opens the sink of its resolutions before that of its events, and
/// the log for what comes meanwhile, for the index, and for the letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Nothing,
    /// The sink of the events is gone once it has confirmed several at once.
    EventsBreak,
    /// The log takes no resolution.
    LogRefuses,
    /// When the letters are read, the first few are there no more.
    Forgets(usize),
    /// Behind the first letter nothing comes, and no end.
    Pauses,
    /// It cannot carry the event of this id.
    Lacks(&'static str),
    /// It answers an inspection once both sinks were polled meanwhile.
    AnswersLate,
}

/// A memory broker with a flaw, which counts what is opened.
#[derive(Debug)]
pub(super) struct Flawed {
    inner: MemoryBroker,
    flaw: Flaw,
    pub(super) sinks: AtomicUsize,
    logs: AtomicUsize,
    /// How often each sink was polled.
    polls: Mutex<Vec<Arc<AtomicUsize>>>,
    pub(super) inspections: AtomicUsize,
    /// The most records that one sink has got between two polls.
    pub(super) most_at_once: Arc<AtomicUsize>,
}

impl Broker for Flawed {
    fn kind(&self) -> &'static SinkKind {
        self.inner.kind()
    }

    fn open(&self, first: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let inner = self.inner.open(first)?;
        let is_second = self.sinks.fetch_add(1, Ordering::Relaxed) == 1;
        let polls = Arc::new(AtomicUsize::new(0));
        self.polls.lock().unwrap().push(Arc::clone(&polls));
        let most_at_once = Arc::clone(&self.most_at_once);
        Ok(Box::new(FlawedSink {
            inner,
            flaw: self.flaw,
            is_second,
            polls,
            since_poll: 0,
            most_at_once,
        }))
    }

    fn inspect(&self, wanted: &Requirements) -> Vec<Finding> {
        if self.flaw == Flaw::AnswersLate {
            let deadline = Instant::now() + Duration::from_secs(20);
            for polls in self.polls.lock().unwrap().iter() {
                let before = polls.load(Ordering::Relaxed);
                while polls.load(Ordering::Relaxed) == before {
                    assert!(Instant::now() < deadline, "a sink is not polled meanwhile");
                    std::thread::yield_now();
                }
            }
            self.inspections.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.inspect(wanted)
    }

    fn prepare(&self, wanted: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        self.inner.prepare(wanted, dry_run)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        let inner = self.inner.log(dead_letters, from)?;
        let is_third = self.logs.fetch_add(1, Ordering::Relaxed) == 2;
        match self.flaw {
            Flaw::Forgets(_) | Flaw::Pauses if is_third => {
                Ok(Box::new(FlawedLog { inner, flaw: self.flaw, read: 0 }))
            }
            _ => Ok(inner),
        }
    }
}

struct FlawedSink {
    inner: Box<dyn Sink>,
    flaw: Flaw,
    /// It is that of the events.
    is_second: bool,
    polls: Arc<AtomicUsize>,
    since_poll: usize,
    most_at_once: Arc<AtomicUsize>,
}

impl Sink for FlawedSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        if self.is_second && matches!(self.flaw, Flaw::Lacks(id) if id == event.id) {
            let disposition = Disposition::Terminal;
            return Err(PublishError::Failed(Failure { disposition, ..failure() }));
        }
        if !self.is_second && self.flaw == Flaw::LogRefuses {
            return Err(PublishError::Failed(failure()));
        }
        self.since_poll += 1;
        self.most_at_once.fetch_max(self.since_poll, Ordering::Relaxed);
        self.inner.publish(sequence, event)
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.since_poll = 0;
        self.inner.poll(now, patience, reports);
        if self.is_second && self.flaw == Flaw::EventsBreak && reports.len() > 1 {
            reports.push(SinkReport::Broken("cut off".to_owned()));
        }
    }

    fn retry(&mut self, sequence: Sequence) {
        self.inner.retry(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        self.inner.replace_with_dead_letter(sequence, writer, cause);
    }
}

struct FlawedLog {
    inner: Box<dyn DeadLetterLog>,
    flaw: Flaw,
    read: usize,
}

impl DeadLetterLog for FlawedLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        loop {
            if self.flaw == Flaw::Pauses && self.read > 0 {
                return Ok(LogRead::Nothing);
            }
            let read = self.inner.next(patience)?;
            self.read += 1;
            match self.flaw {
                Flaw::Forgets(count) if self.read <= count => {}
                _ => return Ok(read),
            }
        }
    }
}

/// The audit lines that are written meanwhile.
pub(super) fn audit(work: impl FnOnce()) -> Vec<String> {
    let audit_lines = Targets::new().with_target(AUDIT, Level::INFO);
    let text = written(audit_lines, TEXT, work);
    text.lines().map(str::to_owned).collect()
}

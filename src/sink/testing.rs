//! A broker in the process, for tests: they read back what arrived, and give it the faults that
//! brokers have. The conformance suite runs over it, too, from `tests/sinks`.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::finding::Finding;
use crate::base::lock::locked;
use crate::dead_letter::record::{LogEntry, PartitionOffset};
use crate::dead_letter::writer::{
    CLASS_PARKED, DeadLetterAddress, DeadLetterCause, DeadLetterWriter, EVENT_ID,
};
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};
use crate::sink::{
    Broker, Disposition, Failure, PublishError, Requirements, SINKS, Sink, SinkKind, SinkReport,
    StartupCheck,
};

/// Clones are the same broker.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryBroker(Arc<Mutex<State>>);

/// An event as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) id: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) event_type: Option<String>,
    pub(crate) content_type: Option<String>,
    /// Commit time, microseconds since the Unix epoch.
    pub(crate) commit_unix_us: i64,
    pub(crate) partition: Option<i32>,
}

#[derive(Default)]
struct State {
    arrived: Vec<Arrived>,
    /// Takes nothing in while it is full.
    full: bool,
    /// Answers nothing while it is down.
    down: bool,
    /// Takes events and does not answer: what is confirmed is kept back.
    silent: bool,
    /// Answers to events that bear one of these ids.
    refusals: Vec<(String, Failure)>,
    /// The answer to dead letters.
    letters_refused: Option<Failure>,
    /// Changes each log that is opened, or refuses it.
    change_log: Option<ChangeLog>,
}

type ChangeLog =
    Box<dyn Fn(Box<dyn DeadLetterLog>) -> Result<Box<dyn DeadLetterLog>, Fault> + Send>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    fn refusal(&self, event: &Arrived) -> Option<&Failure> {
        if event.headers.iter().any(|(name, _)| name == EVENT_ID) {
            return self.letters_refused.as_ref();
        }
        self.refusals.iter().find(|(id, _)| *id == event.id).map(|(_, failure)| failure)
    }
}

impl MemoryBroker {
    /// Everything that arrived, in order.
    #[must_use]
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.state().arrived.clone()
    }

    /// Takes nothing until it is up again.
    pub(crate) fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Its sinks take no event in until there is room again.
    pub(crate) fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Takes events and confirms none until it speaks again.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.state().silent = silent;
    }

    /// Refuses the event `id` with `failure` until [`MemoryBroker::accept`].
    pub(crate) fn refuse(&self, id: &str, failure: Failure) {
        self.state().refusals.push((id.to_owned(), failure));
    }

    /// Refuses dead letters with `failure` until [`MemoryBroker::accept`].
    pub(crate) fn refuse_letters(&self, failure: Failure) {
        self.state().letters_refused = Some(failure);
    }

    /// Lets `change` decide what each log is that is opened from now on.
    pub(crate) fn change_logs(
        &self,
        change: impl Fn(Box<dyn DeadLetterLog>) -> Result<Box<dyn DeadLetterLog>, Fault>
        + Send
        + 'static,
    ) {
        self.state().change_log = Some(Box::new(change));
    }

    /// Ends all refusals.
    pub(crate) fn accept(&self) {
        let mut state = self.state();
        state.refusals.clear();
        state.letters_refused = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl Broker for MemoryBroker {
    fn kind(&self) -> &'static SinkKind {
        SINKS.iter().find(|kind| kind.name == "memory").unwrap()
    }

    fn open(&self, _check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let broker = self.clone();
        let (waiting, unreachable, reports) = (VecDeque::new(), false, Vec::new());
        Ok(Box::new(MemorySink { broker, waiting, unreachable, reports }))
    }

    fn inspect(&self, _required: &Requirements) -> Vec<Finding> {
        Vec::new()
    }

    fn prepare(&self, _required: &Requirements, _dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        Ok(Vec::new())
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        let log = Box::new(MemoryLog::open(self.clone(), &dead_letters.topic, &from));
        match &self.state().change_log {
            Some(change) => change(log),
            None => Ok(log),
        }
    }
}

/// Publishes in order; behind an event that is refused, its key waits.
struct MemorySink {
    broker: MemoryBroker,
    waiting: VecDeque<Waiting>,
    unreachable: bool,
    reports: Vec<SinkReport>,
}

#[derive(Debug)]
struct Waiting {
    sequence: Sequence,
    event: Arrived,
    /// Waits for its retry, or its burial.
    refused: bool,
}

impl Arrived {
    fn copy(event: &Outbound<'_>) -> Arrived {
        let own = |(name, value): &(&str, &[u8])| ((*name).to_owned(), value.to_vec());
        Arrived {
            topic: event.topic.to_owned(),
            key: event.key.map(<[u8]>::to_vec),
            value: event.value.map(<[u8]>::to_vec),
            id: event.id.to_owned(),
            headers: event.headers.iter().map(own).collect(),
            event_type: event.event_type.map(str::to_owned),
            content_type: event.content_type.map(str::to_owned),
            commit_unix_us: event.commit_unix_us,
            partition: event.partition,
        }
    }

    /// Its letter.
    fn letter(&self, writer: &DeadLetterWriter, cause: &DeadLetterCause) -> Arrived {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let event = Outbound {
            exchange: "",
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            id: &self.id,
            event_type: self.event_type.as_deref(),
            content_type: self.content_type.as_deref(),
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: self.partition,
        };
        writer.compose(&event, cause, Arrived::copy)
    }
}

impl Sink for MemorySink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        if self.broker.state().full {
            return Err(PublishError::QueueFull);
        }
        let event = Arrived::copy(event);
        self.waiting.push_back(Waiting { sequence, event, refused: false });
        Ok(())
    }

    fn poll(&mut self, _now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        self.deliver(&self.broker.clone());
        if self.reports.is_empty() {
            std::thread::sleep(patience);
        }
        reports.append(&mut self.reports);
    }

    fn retry(&mut self, sequence: Sequence) {
        let found = self.waiting.iter_mut().find(|waiting| waiting.sequence == sequence);
        if let Some(waiting) = found {
            waiting.refused = false;
        }
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let at = self.waiting.iter().position(|waiting| waiting.sequence == sequence);
        let Some(at) = at else { return };
        let buried = &mut self.waiting[at];
        buried.event = buried.event.letter(writer, cause);
        buried.refused = false;
        let key = buried.event.key.clone();
        if !cause.parks_key || key.is_none() {
            return;
        }
        for behind in self.waiting.iter_mut().skip(at + 1) {
            if behind.event.key == key && !behind.refused {
                behind.refused = true;
                self.reports.push(SinkReport::Failed(behind.sequence, parked(&behind.event)));
            }
        }
    }
}

/// An earlier event of its key was buried.
fn parked(event: &Arrived) -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: event.key.as_deref().map(Box::from),
        class: CLASS_PARKED.to_owned(),
        subject: format!("event {}, topic {}", event.id, event.topic),
        reason: "an earlier event of its key is a dead letter".to_owned(),
        mend: String::new(),
    }
}

impl MemorySink {
    fn deliver(&mut self, broker: &MemoryBroker) {
        let mut state = broker.state();
        if state.down != self.unreachable {
            self.unreachable = state.down;
            self.reports.push(match state.down {
                true => SinkReport::Unreachable("the memory broker is down".to_owned()),
                false => SinkReport::Reachable,
            });
        }
        if state.down || state.silent {
            return;
        }
        let mut held: HashSet<Vec<u8>> = HashSet::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let Waiting { sequence, event, refused } = &mut waiting;
            let behind = event.key.as_ref().is_some_and(|key| held.contains(key));
            if !*refused && !behind {
                let Some(failure) = state.refusal(event) else {
                    self.reports.push(SinkReport::Confirmed(*sequence));
                    state.arrived.push(waiting.event);
                    continue;
                };
                let key = event.key.as_deref().map(Box::from);
                self.reports
                    .push(SinkReport::Failed(*sequence, Failure { key, ..failure.clone() }));
                *refused = true;
            }
            held.extend(event.key.clone());
            self.waiting.push_back(waiting);
        }
    }
}

/// A reader of one topic.
struct MemoryLog {
    broker: MemoryBroker,
    topic: String,
    /// How many of everything that arrived has been looked at.
    next: usize,
    /// How many there were when it was opened.
    end: usize,
    end_told: bool,
}

impl MemoryLog {
    fn open(broker: MemoryBroker, topic: &str, from: &ReadFrom) -> MemoryLog {
        let arrived = broker.arrived();
        let end = arrived.len();
        let next = match from {
            ReadFrom::Beginning => 0,
            ReadFrom::Time(time) => {
                let at = |event: &Arrived| event.topic == topic && event.commit_unix_us >= *time;
                arrived.iter().position(at).unwrap_or(end)
            }
            ReadFrom::End => end,
        };
        MemoryLog { broker, topic: topic.to_owned(), next, end, end_told: false }
    }

    /// The next entry, if there is one by now.
    fn entry(&mut self) -> Option<LogEntry> {
        let limit = if self.end_told { usize::MAX } else { self.end };
        let state = self.broker.state();
        while let Some(event) = state.arrived.get(self.next).filter(|_| self.next < limit) {
            let partition = event.partition.unwrap_or(0);
            let same = |other: &&Arrived| {
                other.topic == self.topic && other.partition.unwrap_or(0) == partition
            };
            let offset = state.arrived[..self.next].iter().filter(same).count();
            self.next += 1;
            if event.topic == self.topic {
                return Some(LogEntry {
                    position: PartitionOffset {
                        partition,
                        offset: i64::try_from(offset).unwrap_or(i64::MAX),
                    },
                    written_unix_us: event.commit_unix_us,
                    key: event.key.clone(),
                    value: event.value.clone(),
                    headers: event.headers.clone(),
                    event_type: event.event_type.clone(),
                    content_type: event.content_type.clone(),
                });
            }
        }
        None
    }
}

impl DeadLetterLog for MemoryLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        if let Some(entry) = self.entry() {
            return Ok(LogRead::Entry(entry));
        }
        if !self.end_told {
            self.end_told = true;
            return Ok(LogRead::End);
        }
        std::thread::sleep(patience);
        Ok(LogRead::Nothing)
    }
}

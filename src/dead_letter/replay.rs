//! Replaying dead letters (publishing their events), discarding them, and writing the releases of
//! parked keys ([`super::release`]).
//!
//! * Events are published in the order of the log, which is that of each key.
//! * An event counts as replayed once the broker has confirmed the event *and* its resolution. A
//!   process that is killed leaves at most [`WINDOW`] events that will be published a second time.
//! * The first event that is refused ends the job: what is in flight is settled and resolved, the
//!   rest stays open.
//! * An event that cannot be replayed is passed over, and so are the later ones of its key.
//! * What others write to the log meanwhile is read, too ([`super::replay_guard`]).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use walrelay_core::base::clock::Moment;

use super::destinations::Destinations;
use super::filter::DeadLetterFilter;
use super::fold::{DeadLetterIndex, KnownDeadLetter};
use super::passed_over::PassedOver;
use super::pipeline::{Pipeline, UNWRITABLE};
use super::rate::{Rate, RateLimiter};
use super::reader::{DeadLetterTopic, INTERRUPTED, LogReader, interrupted};
use super::record::{DeadLetter, LogRecord, Resolution, ResolutionKind};
use super::replay_check::ReplayCheck;
use super::replay_guard::{ReplayGuard, TWO_REPLAYS};
use crate::base::error::{Exit, Fault};
use crate::base::random;
use crate::sink::PublishError;
use crate::sink::log::{LogRead, ReadFrom};

/// Most events that are published and not yet resolved.
pub(crate) const WINDOW: usize = 64;
/// While something is in flight.
const PATIENCE: Duration = Duration::from_millis(5);
/// While nothing is.
const IDLE_PATIENCE: Duration = Duration::from_millis(20);
/// How long a consumer's dead letters are watched after the last event was published: what fails for
/// the same reason as before comes back within milliseconds.
const WATCH: Duration = Duration::from_secs(3);
/// Most records that are read before confirms are collected again.
const RECORDS_PER_STEP: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayAction {
    Replay,
    Discard,
    Release,
}

impl ReplayAction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReplayAction::Replay => "replay",
            ReplayAction::Discard => "discard",
            ReplayAction::Release => "release",
        }
    }

    /// The word for what it was done to.
    pub(crate) fn past(self) -> &'static str {
        match self {
            ReplayAction::Replay => "replayed",
            ReplayAction::Discard => "discarded",
            ReplayAction::Release => "released",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ReplayJob {
    pub(crate) action: ReplayAction,
    pub(crate) filter: DeadLetterFilter,
    pub(crate) rate: Option<Rate>,
    /// Where events may go; none for anywhere.
    pub(crate) destinations: Option<Destinations>,
    /// How many the filter matched when somebody looked: with another number nothing is done.
    pub(crate) expected: Option<usize>,
    /// Who asked for it.
    pub(crate) by: String,
}

impl ReplayJob {
    /// Without a rate, to anywhere.
    pub(crate) fn new(action: ReplayAction, filter: DeadLetterFilter, by: &str) -> ReplayJob {
        let by = by.to_owned();
        ReplayJob { action, filter, rate: None, destinations: None, expected: None, by }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct ReplayProgress {
    /// Dead letters that the filter matches, or keys to be released.
    pub(crate) matched: usize,
    /// How many of them are resolved, or released.
    pub(crate) done: usize,
    #[serde(flatten)]
    pub(crate) passed_over: PassedOver,
    /// How many were counted and are no longer in the topic.
    pub(crate) gone: usize,
    /// Records that were read to find them.
    pub(crate) records: u64,
}

#[derive(Debug)]
pub(crate) struct ReplayReport {
    pub(crate) progress: ReplayProgress,
    /// Why not all of them are resolved.
    pub(crate) fault: Option<Fault>,
}

/// Replays or discards. `clock` returns the current time; `observe` is called after each step.
pub(crate) fn run(
    topic: &DeadLetterTopic<'_>,
    job: &ReplayJob,
    clock: &dyn Fn() -> Moment,
    observe: &mut dyn FnMut(&ReplayProgress),
) -> ReplayReport {
    let mut progress = ReplayProgress::default();
    let fault = match Replay::begin(topic, job, clock(), &mut progress) {
        Ok(Some(mut replay)) => {
            replay.carry_out(clock, &mut progress, observe);
            replay.end(&mut progress)
        }
        Ok(None) => None,
        Err(fault) => Some(fault),
    };
    let ReplayJob { filter, by: who, .. } = job;
    let (action, count) = (job.action.name(), progress.done);
    let ended = fault.as_ref().map_or("done", |fault| fault.code);
    tracing::info!(target: "audit", who, action, %filter, count, ended, "dead letters: {action} ended");
    ReplayReport { progress, fault }
}

/// A job under way.
pub(super) struct Replay<'a> {
    topic: &'a DeadLetterTopic<'a>,
    job: &'a ReplayJob,
    pub(super) index: DeadLetterIndex,
    /// The dead letters; none once all that are selected have been read.
    letters: Option<LogReader>,
    /// How many of them have not been read.
    unread: usize,
    /// The releases that are to be written.
    pub(super) releases: VecDeque<Resolution>,
    /// The reader of records that are written meanwhile.
    pub(super) tail: LogReader,
    /// The next dead letter, while it must wait.
    held: Option<DeadLetter>,
    limiter: Option<RateLimiter>,
    guard: ReplayGuard,
    pipeline: Pipeline<'a>,
    check: ReplayCheck<'a>,
    /// Why nothing more is published, and since when.
    pub(super) halt: Option<(Fault, Instant)>,
    /// The job does not end before: what it has published may come back.
    watch_until: Instant,
}

impl<'a> Replay<'a> {
    /// Finds the dead letters; none when the filter matches nothing.
    fn begin(
        topic: &'a DeadLetterTopic<'a>,
        job: &'a ReplayJob,
        now: Moment,
        progress: &mut ReplayProgress,
    ) -> Result<Option<Replay<'a>>, Fault> {
        // Opened before the index is made, so that every record is seen by one of them.
        let tail = topic.reader(ReadFrom::End)?;
        let ReplayJob { filter, by: who, .. } = job;
        let index = topic.index(filter)?;
        progress.records = index.records;
        progress.matched = index.count_selected(filter.states());
        let (action, count) = (job.action.name(), progress.matched);
        tracing::info!(target: "audit", who, action, %filter, count, "dead letters: {action} begins");
        if let Some(expected) = job.expected.filter(|expected| *expected != count) {
            return Err(Fault::new(
                Exit::Failed,
                "dead-letter.changed",
                format!(
                    "{count} dead letters match now, not the {expected} that were seen: nothing was done"
                ),
                "expected",
                "look at them again, and repeat it with what matches now",
            ));
        }
        if count == 0 {
            return Ok(None);
        }
        let letters = topic.reader(filter.read_from())?;
        let replay = Replay::new(topic, job, index, tail, now)?;
        Ok(Some(Replay { letters: Some(letters), unread: count, ..replay }))
    }

    /// A job that has nothing to do yet.
    pub(super) fn new(
        topic: &'a DeadLetterTopic<'a>,
        job: &'a ReplayJob,
        index: DeadLetterIndex,
        tail: LogReader,
        now: Moment,
    ) -> Result<Replay<'a>, Fault> {
        // Tells two replays of one person apart.
        let by = format!("{}#{:08x}", job.by, random::seed() as u32);
        Ok(Replay {
            topic,
            job,
            index,
            letters: None,
            unread: 0,
            releases: VecDeque::new(),
            tail,
            held: None,
            limiter: job.rate.map(|rate| RateLimiter::new(rate, now.unix_us)),
            guard: ReplayGuard::new(&by),
            pipeline: Pipeline::open(topic, now.instant)?,
            check: ReplayCheck::new(topic, job.destinations.as_ref()),
            halt: None,
            watch_until: now.instant,
        })
    }

    pub(super) fn carry_out(
        &mut self,
        clock: &dyn Fn() -> Moment,
        progress: &mut ReplayProgress,
        observe: &mut dyn FnMut(&ReplayProgress),
    ) {
        while !self.step(clock(), progress) {
            observe(progress);
        }
        observe(progress);
    }

    /// One round; true when the job has ended.
    fn step(&mut self, now: Moment, progress: &mut ReplayProgress) -> bool {
        let is_stopped = self.topic.stop.load(Ordering::Relaxed);
        if is_stopped && !self.is_done() {
            self.halt(interrupted(""), now);
        }
        if let Err(fault) = self.read_tail(now) {
            if fault.code == TWO_REPLAYS {
                self.pipeline.withdraw(now.instant);
            }
            self.halt(fault, now);
        }
        let mut patience = IDLE_PATIENCE;
        if self.halt.is_none() {
            match self.publish_next(now, progress) {
                Ok(wait) => patience = patience.min(wait),
                Err(fault) => self.halt(fault, now),
            }
        }
        if self.pipeline.unresolved() > 0 {
            patience = patience.min(PATIENCE);
        }
        let (resolved, fault) = self.pipeline.advance(patience, now);
        self.guard.resolved(resolved, now.unix_us);
        progress.done += resolved;
        progress.passed_over.clone_from(&self.check.passed_over);
        match fault {
            Some(fault) if fault.code == UNWRITABLE => {
                self.halt(unwritten(fault, self.job.action, progress), now);
            }
            Some(fault) => self.halt(fault, now),
            None => {}
        }
        let is_empty = self.pipeline.unresolved() == 0;
        match &mut self.halt {
            Some((fault, at)) => {
                // Only now it is known what has become of the events in flight.
                if fault.code == INTERRUPTED {
                    let unresolved = self.pipeline.unresolved();
                    *fault = stopped(self.job.action, progress, unresolved);
                }
                is_empty || self.pipeline.is_settled(*at, now.instant)
            }
            None => self.is_done() && (is_stopped || now.instant >= self.watch_until),
        }
    }

    /// Everything that matched is resolved.
    fn is_done(&self) -> bool {
        let is_read = self.letters.is_none() && self.held.is_none();
        self.pipeline.unresolved() == 0 && is_read && self.releases.is_empty()
    }

    /// Publishes nothing more; the first reason counts.
    fn halt(&mut self, fault: Fault, now: Moment) {
        self.halt.get_or_insert((fault, now.instant));
    }

    /// Reads what has been written since the start. What a release needs of it is read behind it.
    fn read_tail(&mut self, now: Moment) -> Result<(), Fault> {
        if self.job.action == ReplayAction::Release {
            return Ok(());
        }
        for _ in 0..RECORDS_PER_STEP {
            match self.tail.next(Duration::ZERO)? {
                LogRead::Entry(record) => {
                    let change = self.index.follow(&record);
                    if self.job.action == ReplayAction::Replay {
                        self.guard.check(&record, change, now.unix_us)?;
                    }
                }
                LogRead::End => {}
                LogRead::Nothing => break,
            }
        }
        Ok(())
    }

    /// Publishes or resolves what window and rate allow; returns how long to wait for more.
    fn publish_next(
        &mut self,
        now: Moment,
        progress: &mut ReplayProgress,
    ) -> Result<Duration, Fault> {
        for _ in 0..RECORDS_PER_STEP {
            let is_idle = self.pipeline.unresolved() == 0;
            // Before anything is resolved it is not known whether the topic can be written.
            let window = if progress.done == 0 { 1 } else { WINDOW };
            if !self.pipeline.has_room(window) {
                return Ok(PATIENCE);
            }
            if let Some(release) = self.releases.pop_front() {
                self.pipeline.resolve(release);
                continue;
            }
            if self.held.is_none() {
                let Some(letters) = &mut self.letters else { return Ok(IDLE_PATIENCE) };
                match letters.next(if is_idle { IDLE_PATIENCE } else { Duration::ZERO })? {
                    LogRead::Entry(record) => self.held = self.accept(record),
                    // With nothing in flight the reader has waited already.
                    LogRead::Nothing if is_idle => return Ok(Duration::ZERO),
                    LogRead::Nothing => return Ok(PATIENCE),
                    LogRead::End => self.letters = None,
                }
            }
            let Some(letter) = self.held.take() else { continue };
            // While it was held, somebody else may have resolved it.
            let Some(known) = self.selected(&letter) else { continue };
            if let Some(Err(wait)) = self.limiter.as_mut().map(|limiter| limiter.take(now.unix_us))
            {
                self.held = Some(letter);
                return Ok(wait);
            }
            if !self.act_on(&letter, &known, now)? {
                if let Some(limiter) = &mut self.limiter {
                    limiter.give_back();
                }
                self.held = Some(letter);
                return Ok(PATIENCE);
            }
            self.note_read(&letter);
        }
        Ok(Duration::ZERO)
    }

    fn selected(&self, letter: &DeadLetter) -> Option<KnownDeadLetter> {
        self.index.selected(self.job.filter.states(), letter)
    }

    /// The dead letter in a record, if it is selected and the action can be carried out on it.
    fn accept(&mut self, record: LogRecord) -> Option<DeadLetter> {
        let LogRecord::DeadLetter(letter) = record else { return None };
        self.selected(&letter)?;
        if self.job.action == ReplayAction::Replay && self.check.passes_over(&letter) {
            self.note_read(&letter);
            return None;
        }
        Some(*letter)
    }

    /// Notes that the dead letter was reached: one that is still selected at the end is not in the topic. Behind
    /// the last one there may be many records, which are not read.
    fn note_read(&mut self, letter: &DeadLetter) {
        self.index.select(letter.id(), false);
        self.unread = self.unread.saturating_sub(1);
        // Somebody may have discarded one meanwhile that was not counted, where those are selected.
        if self.unread == 0 && self.index.count_selected(self.job.filter.states()) == 0 {
            self.letters = None;
        }
    }

    /// Publishes the event of a dead letter, or discards it; false when the queue of the sink is
    /// full.
    fn act_on(
        &mut self,
        letter: &DeadLetter,
        known: &KnownDeadLetter,
        now: Moment,
    ) -> Result<bool, Fault> {
        let replays = u32::from(known.replays);
        let resolution =
            |kind, replays| letter.resolution(kind, replays, &self.guard.by, now.unix_us);
        if self.job.action == ReplayAction::Discard {
            self.pipeline.resolve(resolution(ResolutionKind::Discarded, replays));
            return Ok(true);
        }
        let replayed = resolution(ResolutionKind::Replayed, replays + 1);
        match self.pipeline.publish(letter, replayed, now.instant)? {
            Err(PublishError::QueueFull) => return Ok(false),
            Ok(()) => {
                self.guard.published(letter, now.unix_us);
                // It may write the dead letter again much later than the event is confirmed.
                if letter.is_of_consumer() {
                    self.watch_until = now.instant + WATCH;
                }
            }
            Err(PublishError::Failed(failure)) => {
                self.check.pass_over_uncarried(letter, &failure.reason);
            }
        }
        Ok(true)
    }

    /// Why not all of them are resolved.
    fn end(self, progress: &mut ReplayProgress) -> Option<Fault> {
        if let Some((fault, _)) = self.halt {
            return Some(fault);
        }
        progress.gone = self.index.count_selected(self.job.filter.states());
        let ReplayProgress { matched, gone, .. } = progress;
        if *gone > 0 {
            return Some(Fault::new(
                Exit::Failed,
                "dead-letter.gone",
                format!(
                    "{gone} of {matched} dead letters were removed from the dead-letter topic, by its retention, before they were reached"
                ),
                "the dead-letter topic",
                "publish the events anew from their source; let the topic keep everything (retention.ms=-1, retention.bytes=-1 and cleanup.policy=delete, or a stream without x-max-age and x-max-length-bytes)",
            ));
        }
        self.check.fault()
    }
}

/// The fault of a job that a person has stopped, with so many records that are not confirmed.
fn stopped(action: ReplayAction, progress: &ReplayProgress, unresolved: usize) -> Fault {
    let ReplayProgress { done, matched, .. } = *progress;
    let left = matched.saturating_sub(done);
    interrupted(&match action {
        ReplayAction::Release => {
            format!("{done} of {matched} keys were released, and {unresolved} more may have been")
        }
        _ => format!("{done} dead letters are resolved, some {left} are left"),
    })
}

/// Adds to the fault of a resolution that cannot be written what is done, and what to do next.
fn unwritten(fault: Fault, action: ReplayAction, progress: &ReplayProgress) -> Fault {
    let ReplayProgress { done, matched, .. } = *progress;
    let (name, past) = (action.name(), action.past());
    let what = match action {
        ReplayAction::Replay => {
            let stays = "what is not resolved there stays open, and a replay publishes it again";
            return Fault { what: format!("{}; {stays}", fault.what), ..fault };
        }
        ReplayAction::Discard => format!("{done} of {matched} dead letters are {past}"),
        ReplayAction::Release => format!("{done} of {matched} keys are {past}"),
    };
    Fault {
        what: format!("{}; {what}, and more may be", fault.what),
        mend: format!("{}\nthen repeat the {name}: what is {past} is left out", fault.mend),
        ..fault
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;

//! Replaying dead letters (publishing their events after all) and discarding them.
//!
//! * Events are published in the order of the log, which is that of each key.
//! * An event counts as replayed once the broker has confirmed it *and* the resolution; a process
//!   that is killed leaves at most [`WINDOW`] events that will be published once more.
//! * The first event that is refused ends it: what is in flight is settled and resolved, the rest
//!   stays as it was.
//! * What others write to the log meanwhile is read as it goes ([`super::replay_guard`]).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::filter::DeadLetterFilter;
use super::fold::{DeadLetterIndex, KnownLetter};
use super::rate::{Rate, RateLimiter};
use super::reader::{DeadLetterTopic, LogReader, NextRecord, interrupted};
use super::record::{DeadLetter, LogRecord, NotReplayable, ResolutionKind};
use super::replay_guard::ReplayGuard;
use super::replay_pipeline::Pipeline;
use crate::base::error::{Exit, Fault};
use crate::sink::log::ReadFrom;

/// Most events that are published and not yet resolved.
pub(crate) const WINDOW: usize = 64;
/// While something is in flight.
const PATIENCE: Duration = Duration::from_millis(5);
/// While nothing is.
const IDLE_PATIENCE: Duration = Duration::from_millis(20);
/// Most records that are read before confirms are collected again.
const RECORDS_PER_STEP: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayAction {
    Replay,
    Discard,
}

impl ReplayAction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReplayAction::Replay => "replay",
            ReplayAction::Discard => "discard",
        }
    }
}

/// What is to be done, to which letters, how fast, and who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayJob<'a> {
    pub(crate) action: ReplayAction,
    pub(crate) filter: &'a DeadLetterFilter,
    pub(crate) rate: Option<Rate>,
    pub(crate) by: &'a str,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct ReplayProgress {
    /// Letters that the filter matches.
    pub(crate) meant: usize,
    /// Letters that are resolved now.
    pub(crate) done: usize,
    /// Letters that were not replayed, by [`NotReplayable`].
    pub(crate) cut: usize,
    pub(crate) unrouted: usize,
    pub(crate) incomplete: usize,
    pub(crate) misrouted: usize,
    /// Letters that were counted and are no longer in the topic.
    pub(crate) gone: usize,
    /// Records that were read to find them.
    pub(crate) records: u64,
}

/// How a job ended, and why it came no farther.
#[derive(Debug)]
pub(crate) struct ReplayReport {
    pub(crate) progress: ReplayProgress,
    pub(crate) fault: Option<Fault>,
}

/// Carries out a job. `clock` returns microseconds since the Unix epoch, `observe` gets the progress
/// again and again.
pub(crate) fn run(
    topic: &DeadLetterTopic<'_>,
    job: &ReplayJob<'_>,
    clock: &dyn Fn() -> i64,
    observe: &mut dyn FnMut(&ReplayProgress),
) -> ReplayReport {
    let mut progress = ReplayProgress::default();
    let fault = match Replay::begin(topic, job, clock(), &mut progress) {
        Ok(Some(mut replay)) => {
            while !replay.step(clock(), &mut progress) {
                observe(&progress);
            }
            observe(&progress);
            replay.end(&mut progress)
        }
        Ok(None) => None,
        Err(fault) => Some(fault),
    };
    let (who, action, count) = (job.by, job.action.name(), progress.done);
    let (filter, ended) = (job.filter, fault.as_ref().map_or("done", |fault| fault.code));
    tracing::info!(target: "audit", who, action, %filter, count, ended, "dead letters: {action} ended");
    ReplayReport { progress, fault }
}

/// A job under way.
struct Replay<'a> {
    topic: &'a DeadLetterTopic<'a>,
    job: &'a ReplayJob<'a>,
    index: DeadLetterIndex,
    /// The letters; none when all of them have been read.
    letters: Option<LogReader>,
    /// What is written meanwhile.
    tail: LogReader,
    /// The next letter, while it must wait.
    held: Option<DeadLetter>,
    limiter: Option<RateLimiter>,
    guard: ReplayGuard,
    by: String,
    pipeline: Pipeline<'a>,
    /// Why no more letters are handed over.
    halt: Option<Fault>,
}

impl<'a> Replay<'a> {
    /// Finds the letters; none when there is nothing to do.
    fn begin(
        topic: &'a DeadLetterTopic<'a>,
        job: &'a ReplayJob<'a>,
        now: i64,
        progress: &mut ReplayProgress,
    ) -> Result<Option<Replay<'a>>, Fault> {
        // Before the index, so that nothing is written unseen between the two.
        let tail = topic.reader(ReadFrom::End)?;
        let index = topic.index(job.filter)?;
        progress.records = index.records;
        progress.meant = index.count_selected(job.filter.states());
        let (who, action, count, filter) = (job.by, job.action.name(), progress.meant, job.filter);
        tracing::info!(target: "audit", who, action, %filter, count, "dead letters: {action} begins");
        if progress.meant == 0 {
            return Ok(None);
        }
        // Two replays of one person must be told apart.
        let by = format!("{}#{:08x}", job.by, RandomState::new().hash_one(0) as u32);
        Ok(Some(Replay {
            topic,
            job,
            index,
            letters: Some(topic.reader_for(job.filter)?),
            tail,
            held: None,
            limiter: job.rate.map(|rate| RateLimiter::new(rate, now)),
            guard: ReplayGuard::new(&by),
            by,
            pipeline: Pipeline::open(topic, now)?,
            halt: None,
        }))
    }

    /// One round; true when the job has ended.
    fn step(&mut self, now: i64, progress: &mut ReplayProgress) -> bool {
        if self.topic.stop.load(Ordering::Relaxed) {
            let (done, left) = (progress.done, progress.meant.saturating_sub(progress.done));
            let what = format!("{done} dead letters are resolved, some {left} are left");
            self.halt(interrupted(&what), now);
        }
        if let Err(fault) = self.read_tail(now) {
            self.halt(fault, now);
        }
        let mut patience = IDLE_PATIENCE;
        if self.halt.is_none() {
            match self.hand_over(now, progress) {
                Ok(wait) => patience = patience.min(wait),
                Err(fault) => self.halt(fault, now),
            }
        }
        if self.pipeline.unresolved() > 0 {
            patience = patience.min(PATIENCE);
        }
        let (resolved, fault) = self.pipeline.advance(patience, now);
        self.guard.resolved(resolved, now);
        progress.done += resolved;
        if let Some(fault) = fault {
            self.halt(fault, now);
        }
        let is_empty = self.pipeline.unresolved() == 0;
        match self.halt {
            Some(_) => is_empty || self.pipeline.is_settled(now),
            None => is_empty && self.letters.is_none() && self.held.is_none(),
        }
    }

    /// No more is handed over; the first reason counts.
    fn halt(&mut self, fault: Fault, now: i64) {
        if self.halt.is_none() {
            self.pipeline.settle_from(now);
            self.halt = Some(fault);
        }
    }

    /// Reads what has been written since the start.
    fn read_tail(&mut self, now: i64) -> Result<(), Fault> {
        for _ in 0..RECORDS_PER_STEP {
            match self.tail.next(Duration::ZERO)? {
                NextRecord::Record(record) => {
                    let change = self.index.apply(&record);
                    if self.job.action == ReplayAction::Replay {
                        self.guard.check(&record, change, now)?;
                    }
                }
                NextRecord::End => {}
                NextRecord::Pause => break,
            }
        }
        Ok(())
    }

    /// Hands over what window and rate allow; returns how long to wait for more.
    fn hand_over(&mut self, now: i64, progress: &mut ReplayProgress) -> Result<Duration, Fault> {
        for _ in 0..RECORDS_PER_STEP {
            let is_idle = self.pipeline.unresolved() == 0;
            if self.pipeline.unresolved() >= WINDOW {
                return Ok(PATIENCE);
            }
            if self.held.is_none() {
                let Some(letters) = &mut self.letters else { return Ok(IDLE_PATIENCE) };
                match letters.next(if is_idle { IDLE_PATIENCE } else { Duration::ZERO })? {
                    NextRecord::Record(record) => self.held = self.accept(record, progress),
                    // With nothing in flight the reader has waited already.
                    NextRecord::Pause if is_idle => return Ok(Duration::ZERO),
                    NextRecord::Pause => return Ok(PATIENCE),
                    NextRecord::End => self.letters = None,
                }
            }
            let Some(letter) = self.held.take() else { continue };
            // It may have been held for long, and resolved by somebody else meanwhile.
            let Some(known) = self.selected(&letter) else { continue };
            if let Some(Err(wait)) = self.limiter.as_mut().map(|limiter| limiter.take(now)) {
                self.held = Some(letter);
                return Ok(wait);
            }
            if !self.send(&letter, &known, now)? {
                if let Some(limiter) = &mut self.limiter {
                    limiter.give_back();
                }
                self.held = Some(letter);
                return Ok(PATIENCE);
            }
            // What stays selected was never met.
            self.index.select(letter.id(), false);
        }
        Ok(Duration::ZERO)
    }

    fn selected(&self, letter: &DeadLetter) -> Option<KnownLetter> {
        self.index.selected(self.job.filter.states(), letter)
    }

    /// The letter in a record, if it is selected and the action can be carried out on it.
    fn accept(&mut self, record: LogRecord, progress: &mut ReplayProgress) -> Option<DeadLetter> {
        let LogRecord::DeadLetter(letter) = record else { return None };
        self.selected(&letter)?;
        let obstacle = letter.not_replayable(self.topic.address);
        let count = match obstacle.filter(|_| self.job.action == ReplayAction::Replay) {
            None => return Some(*letter),
            Some(NotReplayable::Cut) => &mut progress.cut,
            Some(NotReplayable::Unrouted) => &mut progress.unrouted,
            Some(NotReplayable::Incomplete) => &mut progress.incomplete,
            Some(NotReplayable::Misrouted) => &mut progress.misrouted,
        };
        *count += 1;
        self.index.select(letter.id(), false);
        None
    }

    /// Publishes the event of a letter, or resolves it; false when the queue of the sink is full.
    fn send(&mut self, letter: &DeadLetter, known: &KnownLetter, now: i64) -> Result<bool, Fault> {
        let resolution = |kind, replays| letter.resolution(kind, replays, &self.by, now);
        match self.job.action {
            ReplayAction::Discard => {
                let discarded = resolution(ResolutionKind::Discarded, known.replays);
                self.pipeline.resolve(discarded);
                Ok(true)
            }
            ReplayAction::Replay => {
                let replayed = resolution(ResolutionKind::Replayed, known.replays + 1);
                let is_published = self.pipeline.publish(letter, replayed, now)?;
                if is_published {
                    self.guard.published(letter, now);
                }
                Ok(is_published)
            }
        }
    }

    /// Why not all letters are resolved, now that nothing more can be done.
    fn end(self, progress: &mut ReplayProgress) -> Option<Fault> {
        if self.halt.is_some() {
            return self.halt;
        }
        progress.gone = self.index.count_selected(self.job.filter.states());
        let ReplayProgress { meant, gone, cut, unrouted, incomplete, misrouted, .. } = *progress;
        if gone > 0 {
            return Some(Fault::new(
                Exit::Failed,
                "dead-letter.gone",
                format!(
                    "{gone} of {meant} dead letters went out of the dead-letter topic before their turn came: its retention has removed them"
                ),
                "the dead-letter topic",
                "publish them anew from their source; let the topic keep everything (retention.ms=-1, or a stream without x-max-age and x-max-length-bytes)",
            ));
        }
        let skipped = cut + unrouted + incomplete + misrouted;
        (skipped > 0).then(|| {
            Fault::new(
                Exit::Failed,
                "dead-letter.unfit",
                format!(
                    "{skipped} dead letters cannot be replayed: the value of {cut} is cut, the destination of {unrouted} is unknown, {incomplete} never became events, have lost headers, or their key, id, topic or type is cut, {misrouted} would go into the dead-letter topic itself"
                ),
                "",
                "look at them: walrelay dlq list; publish the event anew from its source, then: walrelay dlq discard --id ID",
            )
        })
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;

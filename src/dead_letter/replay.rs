//! Working dead letters off: publishing their events after all, or giving them up.
//!
//! * Events are handed over in the order of the log, which is that of each key.
//! * An event counts as replayed once the broker has confirmed it *and* the resolution; a process
//!   that is killed leaves at most [`WINDOW`] events that will be published once more.
//! * The first event that is refused ends it: what is in flight is settled and resolved, the rest
//!   stays as it was.
//! * What others write to the log meanwhile is read as it goes ([`crate::dead_letter::replay_guard`]).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::filter::DeadLetterFilter;
use super::fold::{Fold, Known};
use super::pipeline::Pipeline;
use super::rate::{Bucket, Rate};
use super::record::{DeadLetter, LogRecord, NotReplayable, ResolutionKind};
use crate::base::error::{Exit, Fault};
use crate::dead_letter::reader::{DeadLetterTopic, Next, Reader, interrupted, meant};
use crate::dead_letter::replay_guard::Guard;
use crate::sink::log::ReadFrom;

/// Most events that are handed over and not yet resolved.
pub const WINDOW: usize = 64;
/// While something is in flight.
const PATIENCE: Duration = Duration::from_millis(5);
/// While nothing is.
const IDLE_PATIENCE: Duration = Duration::from_millis(20);
/// Most records that are read before receipts are looked at again.
const RECORDS_PER_STEP: usize = 512;

/// What becomes of the letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Their events are published.
    Replay,
    /// They are given up.
    Discard,
}

impl Action {
    /// As it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Action::Replay => "replay",
            Action::Discard => "discard",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// What.
    pub action: Action,
    /// To which letters.
    pub filter: &'a DeadLetterFilter,
    /// How fast.
    pub rate: Option<Rate>,
    /// Who asks.
    pub by: &'a str,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Letters that are meant.
    pub meant: usize,
    /// Letters that are resolved now.
    pub done: usize,
    /// Letters whose value is incomplete; not replayed.
    pub cut: usize,
    /// Letters of which nobody knows where they were to go; not replayed.
    pub unrouted: usize,
    /// Letters that never became an event, have lost headers, or of which key, id, topic or type is
    /// cut; not replayed.
    pub incomplete: usize,
    /// Letters whose events would go to the dead-letter topic; not replayed.
    pub misrouted: usize,
    /// Letters that were counted and are no longer in the topic.
    pub gone: usize,
    /// Records that were read to find them.
    pub records: u64,
}

/// How it ended.
#[derive(Debug)]
pub struct Report {
    /// How far it came.
    pub tally: Tally,
    /// Why it came no farther.
    pub fault: Option<Fault>,
}

/// Works the letters off that are meant. `clock` tells microseconds since the Unix epoch, `observe`
/// is told how far it is, again and again.
pub fn run(
    archive: &DeadLetterTopic<'_>,
    job: &Job<'_>,
    clock: &dyn Fn() -> i64,
    observe: &mut dyn FnMut(&Tally),
) -> Report {
    let mut tally = Tally::default();
    let fault = match Work::begin(archive, job, clock, &mut tally) {
        Ok(Some(mut work)) => {
            while !work.step(clock(), &mut tally) {
                observe(&tally);
            }
            observe(&tally);
            work.halt.take().or_else(|| work.gone(&mut tally)).or_else(|| unfit(&tally))
        }
        Ok(None) => None,
        Err(fault) => Some(fault),
    };
    let (who, action, count) = (job.by, job.action.name(), tally.done);
    let (filter, ended) = (job.filter, fault.as_ref().map_or("done", |fault| fault.code));
    tracing::info!(target: "audit", who, action, %filter, count, ended, "dead letters: {action} ended");
    Report { tally, fault }
}

/// A job under way.
struct Work<'a> {
    archive: &'a DeadLetterTopic<'a>,
    job: &'a Job<'a>,
    fold: Fold,
    /// The letters; nothing when all of them have been read.
    letters: Option<Reader>,
    /// What is written meanwhile.
    tail: Reader,
    /// The next letter, while it may not go yet.
    held: Option<DeadLetter>,
    bucket: Option<Bucket>,
    guard: Guard,
    by: String,
    pipeline: Pipeline<'a>,
    halt: Option<Fault>,
}

impl<'a> Work<'a> {
    /// Reads what there is to do; nothing when there is nothing.
    fn begin(
        archive: &'a DeadLetterTopic<'a>,
        job: &'a Job<'a>,
        clock: &dyn Fn() -> i64,
        tally: &mut Tally,
    ) -> Result<Option<Work<'a>>, Fault> {
        // Before the rest, so that nothing is written unseen between the two.
        let tail = archive.reader(ReadFrom::End)?;
        let index = archive.index(job.filter)?;
        tally.records = index.records;
        tally.meant = index.fold.marked(job.filter.states());
        let (who, action, count, filter) = (job.by, job.action.name(), tally.meant, job.filter);
        tracing::info!(target: "audit", who, action, %filter, count, "dead letters: {action} begins");
        if tally.meant == 0 {
            return Ok(None);
        }
        // Two replays of one person must not take each other for themselves.
        let by = format!("{}#{:08x}", job.by, RandomState::new().hash_one(0) as u32);
        let now = clock();
        Ok(Some(Work {
            archive,
            job,
            fold: index.fold,
            letters: Some(archive.reader_for(job.filter)?),
            tail,
            held: None,
            bucket: job.rate.map(|rate| Bucket::new(rate, now)),
            guard: Guard::new(&by),
            by,
            pipeline: Pipeline::open(archive, now)?,
            halt: None,
        }))
    }

    /// One round; true when it is over.
    fn step(&mut self, now: i64, tally: &mut Tally) -> bool {
        if self.archive.stop.load(Ordering::Relaxed) {
            let (done, left) = (tally.done, tally.meant.saturating_sub(tally.done));
            self.end(
                interrupted(&format!("{done} dead letters are resolved, some {left} are left")),
                now,
            );
        }
        if let Err(fault) = self.watch(now) {
            self.end(fault, now);
        }
        let mut patience = IDLE_PATIENCE;
        if self.halt.is_none() {
            match self.hand_over(now, tally) {
                Ok(wait) => patience = patience.min(wait),
                Err(fault) => self.end(fault, now),
            }
        }
        if self.pipeline.in_hand() > 0 {
            patience = patience.min(PATIENCE);
        }
        let round = self.pipeline.round(patience, now);
        for _ in 0..round.resolved {
            self.guard.resolved(now);
        }
        tally.done += round.resolved;
        for fault in round.faults {
            self.end(fault, now);
        }
        let all_read = self.letters.is_none() && self.held.is_none();
        match self.halt {
            Some(_) => self.pipeline.in_hand() == 0 || self.pipeline.is_stuck(now),
            None => self.pipeline.in_hand() == 0 && all_read,
        }
    }

    /// No more is handed over; the first reason is told.
    fn end(&mut self, fault: Fault, now: i64) {
        if self.halt.is_none() {
            self.pipeline.settle_from(now);
            self.halt = Some(fault);
        }
    }

    /// What was counted at the beginning and was not there any more, now that all is read.
    fn gone(&self, tally: &mut Tally) -> Option<Fault> {
        tally.gone = self.fold.marked(self.job.filter.states());
        let Tally { gone, meant, .. } = *tally;
        (gone > 0).then(|| {
            Fault::new(
                Exit::Failed,
                "dead-letter.gone",
                format!(
                    "{gone} of {meant} dead letters went out of the dead-letter topic before their turn came: its retention has removed them"
                ),
                "the dead-letter topic",
                "publish them anew from their source; let the topic keep everything (retention.ms=-1, or a stream without x-max-age and x-max-length-bytes)",
            )
        })
    }

    /// Reads what has been written since the start.
    fn watch(&mut self, now: i64) -> Result<(), Fault> {
        for _ in 0..RECORDS_PER_STEP {
            match self.tail.next(Duration::ZERO)? {
                Next::LogRecord(record) => {
                    let change = self.fold.apply(&record);
                    let alarm = match self.job.action {
                        Action::Replay => self.guard.look(&record, change, now),
                        Action::Discard => None,
                    };
                    alarm.map_or(Ok(()), Err)?;
                }
                Next::End => {}
                Next::Pause => break,
            }
        }
        Ok(())
    }

    /// Hands over what window and rate allow; says how long to wait for more.
    fn hand_over(&mut self, now: i64, tally: &mut Tally) -> Result<Duration, Fault> {
        for _ in 0..RECORDS_PER_STEP {
            if self.pipeline.in_hand() >= WINDOW {
                return Ok(PATIENCE);
            }
            if self.held.is_none() {
                self.held = match self.read()? {
                    Some(Next::LogRecord(record)) => self.fit(record, tally),
                    // With nothing in flight the reader has waited already.
                    Some(Next::Pause) if self.pipeline.in_hand() == 0 => return Ok(Duration::ZERO),
                    Some(Next::Pause) => return Ok(PATIENCE),
                    Some(Next::End) => None,
                    None => return Ok(IDLE_PATIENCE),
                };
            }
            let Some(letter) = self.held.take() else { continue };
            // It may have been held for long, and resolved by somebody else meanwhile.
            let Some(known) = meant(&self.fold, self.job.filter, &letter) else { continue };
            if let Some(Err(wait)) = self.bucket.as_mut().map(|bucket| bucket.take(now)) {
                self.held = Some(letter);
                return Ok(wait);
            }
            if !self.send(&letter, &known, now)? {
                if let Some(bucket) = &mut self.bucket {
                    bucket.give_back();
                }
                self.held = Some(letter);
                return Ok(PATIENCE);
            }
            // What stays marked was never met.
            self.fold.mark(letter.identity(), false);
        }
        Ok(Duration::ZERO)
    }

    /// The next record of the log; nothing when all has been read.
    fn read(&mut self) -> Result<Option<Next>, Fault> {
        let patience = if self.pipeline.in_hand() == 0 { IDLE_PATIENCE } else { Duration::ZERO };
        let Some(reader) = &mut self.letters else { return Ok(None) };
        let next = reader.next(patience)?;
        if matches!(next, Next::End) {
            self.letters = None;
        }
        Ok(Some(next))
    }

    /// The letter in a record, if it is meant and can be worked off.
    fn fit(&mut self, record: LogRecord, tally: &mut Tally) -> Option<DeadLetter> {
        let LogRecord::DeadLetter(letter) = record else { return None };
        meant(&self.fold, self.job.filter, &letter)?;
        let unfit =
            letter.unfit(self.archive.address).filter(|_| self.job.action == Action::Replay);
        match unfit {
            None => return Some(*letter),
            Some(NotReplayable::Cut) => tally.cut += 1,
            Some(NotReplayable::Unrouted) => tally.unrouted += 1,
            Some(NotReplayable::Incomplete) => tally.incomplete += 1,
            Some(NotReplayable::Misrouted) => tally.misrouted += 1,
        }
        self.fold.mark(letter.identity(), false);
        None
    }

    /// Sends a letter on its way; false when the sink is full for now.
    fn send(&mut self, letter: &DeadLetter, known: &Known, now: i64) -> Result<bool, Fault> {
        match self.job.action {
            Action::Discard => {
                let given_up =
                    letter.resolution(ResolutionKind::Discarded, known.replays, &self.by, now);
                self.pipeline.resolve(given_up);
                Ok(true)
            }
            Action::Replay => {
                let count = known.replays + 1;
                let replayed = letter.resolution(ResolutionKind::Replayed, count, &self.by, now);
                let taken = self.pipeline.publish(letter, replayed, now)?;
                if taken {
                    self.guard.handed(letter, now);
                }
                Ok(taken)
            }
        }
    }
}

/// What can never be replayed, once the rest is.
fn unfit(tally: &Tally) -> Option<Fault> {
    let Tally { cut, unrouted, incomplete, misrouted, .. } = *tally;
    let all = cut + unrouted + incomplete + misrouted;
    (all > 0).then(|| {
        Fault::new(
            Exit::Failed,
            "dead-letter.unfit",
            format!(
                "{all} dead letters cannot be replayed: of {cut} the value is cut, of {unrouted} it is unknown where they were to go, {incomplete} never became events, have lost headers, or their key, id, topic or type is cut, {misrouted} would go into the dead-letter topic itself"
            ),
            "",
            "look at them: walrelay dlq list; publish the event anew from its source, then: walrelay dlq discard --id ID",
        )
    })
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;

//! Is there a stop that nobody has acknowledged, and where is it kept?
//!
//! A stop that protects data ([`crate::base::stop`]) is kept in one place until it is acknowledged: in
//! the state file; without one, as a record of the dead-letter topic. The breaker's belongs to the
//! topic, and is kept there as long as it can be written and read. The same file holds what the next
//! process compares with: the publication, the system, and how far the WAL had come.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use super::control::SystemTimeline;
use super::faults;
use super::ports::Clock;
use super::state_file::memory::{Memory, Remembered};
use crate::base::error::Fault;
use crate::base::lock::locked;
use crate::base::lsn::Lsn;
use crate::base::stop::{BREAKER_OPEN, OTHER_SYSTEM, Stop, WENT_BACK};
use crate::dead_letter::record::{StopBody, StopRecord, StopRecordKind};
use crate::dead_letter::writer::SystemId;
use crate::doctor::fingerprint::{KeptPublication, KnownPublication, PublicationKeeper};
use crate::source::settings::SourceSettings;

/// Where a stop is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    StateFile,
    Topic,
    Nowhere,
}

/// The places where stops are kept besides the state file, and the facts with which an
/// acknowledgement is compared. Both are waited for.
pub trait StopSurroundings: Send + Sync {
    /// Whether anything is ever written to the dead-letter topic.
    fn has_topic(&self) -> bool;

    /// Appends a record to the dead-letter topic. Returns once the broker has confirmed it.
    fn append(&self, record: &StopRecord) -> Result<(), Fault>;

    /// The present state of Postgres. The publication must be in order.
    fn present(&self) -> Result<Present, Fault>;
}

/// The state of Postgres when a stop is acknowledged.
#[derive(Clone, Debug)]
pub struct Present {
    pub publication: KeptPublication,
    pub digest: String,
    pub system_id: String,
    pub timeline: u32,
    pub wal_end: Lsn,
}

/// The surroundings of [`StandingStops`].
pub struct StopParts {
    pub source: SourceSettings,
    pub is_polling: bool,
    /// Known once this process has asked Postgres.
    pub system: SystemId,
    /// Who stops: the relay and its machine.
    pub relay: String,
    /// The state file that a command did not find.
    pub missing_file: Option<PathBuf>,
    pub surroundings: Box<dyn StopSurroundings>,
    pub clock: Arc<dyn Clock>,
}

/// The stop that stands, shared by the threads of a process.
pub struct StandingStops {
    parts: StopParts,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    memory: Option<Memory>,
    remembered: Remembered,
    /// Where the last process read the slot, and how far the WAL had come, as this one found it.
    last: Option<(SystemTimeline, Lsn)>,
    /// This process reads the slot: it was judged against the last one.
    reads: bool,
    /// How far the WAL has come, until this process reads the slot.
    unwritten: Option<Lsn>,
    /// The publication that is known is not in the file yet: it is written when this process reads the slot.
    is_publication_unwritten: bool,
    /// The system that the session is of, also where that is a reason to stop.
    met_system: Option<String>,
    standing: Option<(Stop, Place)>,
    /// It was kept before the relay had ended: nobody can acknowledge it yet, or it would be kept again.
    is_early: bool,
    /// Why this process waits, also where nothing is kept.
    halted: Option<Stop>,
    /// It may go on.
    resumed: bool,
    topic_unreadable: bool,
    /// It was logged that the state file cannot be written.
    write_failed: bool,
}

impl fmt::Debug for StandingStops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandingStops").field("state", &self.state).finish_non_exhaustive()
    }
}

impl StandingStops {
    /// `memory` is the state file, if there is one, and what it holds.
    #[must_use]
    pub fn new(parts: StopParts, memory: Option<(Memory, Remembered)>) -> StandingStops {
        let mut state = State::default();
        if let Some((memory, remembered)) = memory {
            state.memory = Some(memory);
            state.take_over(remembered, &parts.source.slot);
        }
        StandingStops { parts, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The stop that nobody has acknowledged, and where it is kept.
    pub fn standing(&self) -> Option<(Stop, Place)> {
        self.state().standing.clone()
    }

    /// The fault with which a process ends because of it.
    pub fn fault(&self) -> Option<Fault> {
        let (stop, _) = self.standing()?;
        stop.fault()
    }

    /// The relay will stop with this fault. The process may be killed before, so a stop that belongs to the state file
    /// is kept there now.
    pub fn keep_early(&self, fault: &Fault) {
        let mut state = self.state();
        let belongs_to_file = fault.doubt.is_some() && fault.code != BREAKER_OPEN;
        // It would be kept again if somebody acknowledged it before the relay has ended.
        state.is_early |= fault.doubt.is_some() && state.has_known_stop();
        if !belongs_to_file || state.has_known_stop() || state.memory.is_none() {
            return;
        }
        let stop = Stop::of(fault, self.parts.clock.unix_us());
        let before = state.remembered.stop.replace(stop.clone());
        if state.write(&self.parts.source.slot) {
            state.tell_kept(&stop, Place::StateFile);
            (state.standing, state.is_early) = (Some((stop, Place::StateFile)), true);
        } else {
            state.remembered.stop = before;
        }
    }

    /// The relay stops with this fault: keeps it if it protects data and is not kept already. What
    /// is in flight has settled by now, and no thread writes to the topic any more.
    pub fn keep(&self, fault: &Fault) {
        let mut state = self.state();
        state.is_early = false;
        if fault.doubt.is_none() || state.has_known_stop() {
            return;
        }
        let stop = Stop::of(fault, self.parts.clock.unix_us());
        let place = self.keep_in(&mut state, &stop);
        if place == Place::Nowhere || place == Place::Topic && state.topic_unreadable {
            tracing::error!(
                code = "stop.unkept",
                reason = stop.code,
                "the next start does not find this stop, and continues: name a file with delivery.state_file"
            );
        } else {
            state.tell_kept(&stop, place);
        }
        state.standing = Some((stop, place)).filter(|(_, place)| *place != Place::Nowhere);
    }

    fn keep_in(&self, state: &mut State, stop: &Stop) -> Place {
        let of_breaker = stop.code == BREAKER_OPEN;
        let body = self.body(state, stop);
        // The next process does not find a stop in a topic that cannot be read.
        let belongs_to_topic = of_breaker && !state.topic_unreadable;
        if belongs_to_topic && self.append(StopRecordKind::Stopped, body.clone()) {
            return Place::Topic;
        }
        if state.memory.is_some() {
            let before = state.remembered.stop.replace(stop.clone());
            if state.write(&self.parts.source.slot) {
                return Place::StateFile;
            }
            state.remembered.stop = before;
        }
        // The breaker's stop is written to such a topic all the same, where people may read it.
        let is_of_use = of_breaker || !state.topic_unreadable;
        let in_topic = !belongs_to_topic && is_of_use && self.append(StopRecordKind::Stopped, body);
        if in_topic { Place::Topic } else { Place::Nowhere }
    }

    fn body(&self, state: &State, stop: &Stop) -> StopBody {
        // The next process is of the system that this one has met.
        let met = state.met_system.clone().filter(|_| stop.code == OTHER_SYSTEM);
        StopBody {
            slot: self.parts.source.slot.clone(),
            system: met.or_else(|| self.parts.system.get()).unwrap_or_default(),
            stop: stop.clone(),
            by: self.parts.relay.clone(),
            unix_us: self.parts.clock.unix_us(),
            ..StopBody::default()
        }
    }

    /// True when the broker has confirmed the record.
    fn append(&self, kind: StopRecordKind, body: StopBody) -> bool {
        self.try_append(kind, body).is_ok_and(|written| written)
    }

    fn try_append(&self, kind: StopRecordKind, body: StopBody) -> Result<bool, Fault> {
        if !self.parts.surroundings.has_topic() {
            return Ok(false);
        }
        let written = self.parts.surroundings.append(&StopRecord::new(kind, body));
        if let Err(Fault { what, .. }) = &written {
            tracing::warn!(
                code = "stop.unwritten",
                error = what,
                "the dead-letter topic does not take the record of the stop"
            );
        }
        written.map(|()| true)
    }

    /// A command has found what would stop the next relay at its start, so that it can be
    /// acknowledged before.
    pub fn found_gap(&self, fault: &Fault) {
        if fault.doubt.is_some() {
            let found = (Stop::of(fault, self.parts.clock.unix_us()), self.place_of_gaps());
            self.state().standing = Some(found);
        }
    }

    /// This process waits because of a fault, until it is resumed.
    pub fn note_halt(&self, fault: &Fault) -> Stop {
        let mut state = self.state();
        let stop = match &state.standing {
            Some((stop, _)) => stop.clone(),
            None => Stop::of(fault, self.parts.clock.unix_us()),
        };
        (state.halted, state.resumed) = (Some(stop.clone()), false);
        stop
    }

    /// Whether the process that waits may go on: it was resumed, or its stop was acknowledged in
    /// the state file by a command.
    pub fn may_go_on(&self) -> bool {
        let mut state = self.state();
        let in_file = state.standing.clone().filter(|(_, place)| *place == Place::StateFile);
        let found = in_file.zip(state.memory.as_mut().and_then(Memory::reload));
        if let Some(((stop, _), found)) = found
            && found.slot == self.parts.source.slot
            && found.stop.as_ref() != Some(&stop)
        {
            state.take_over(found, &self.parts.source.slot);
            state.resumed = true;
        }
        let goes_on = state.resumed;
        if goes_on {
            (state.halted, state.resumed) = (None, false);
            state.begin_anew();
        }
        goes_on
    }

    /// Acknowledges the stop. What Postgres says now is what is known from then on, so it must be in
    /// order. Blocks on Postgres and the broker. Another stop than `seen`, which somebody was shown, is not
    /// acknowledged.
    pub fn resume(&self, by: &str, reason: &str, seen: Option<&Stop>) -> Result<Stop, Fault> {
        let is_seen = |it: &Stop| seen.is_none_or(|seen| it.is(&seen.code, seen.since_unix_us));
        let nothing = self.nothing();
        let (stop, place) = {
            let mut state = self.state();
            let standing = state.standing.clone().filter(|_| !state.is_early);
            match (standing, state.halted.clone()) {
                (Some((stop, _)), _) | (None, Some(stop)) if !is_seen(&stop) => {
                    return Err(faults::stop_changed());
                }
                (Some(standing), _) => standing,
                (None, Some(stop)) => {
                    state.resumed = true;
                    return Ok(stop);
                }
                (None, None) => return Err(nothing),
            }
        };
        let found =
            if stop.code == BREAKER_OPEN { None } else { Some(self.parts.surroundings.present()?) };
        let slot = &self.parts.source.slot;
        if self.state().is_acknowledged(&stop, slot)? {
            return Ok(stop);
        }
        if place == Place::Topic || stop.code == BREAKER_OPEN {
            let publication = found.as_ref().map(|found| found.digest.clone());
            let (by, reason) = (by.to_owned(), reason.to_owned());
            let body = StopBody { by, reason, publication, ..self.body(&self.state(), &stop) };
            let appended = self.try_append(StopRecordKind::Resumed, body);
            // What the file has ends there; that the topic does not know of it was logged.
            if place == Place::Topic {
                appended?;
            }
        }
        let mut state = self.state();
        // The topic was waited for: what was kept meanwhile was shown to nobody.
        if state.is_acknowledged(&stop, slot)? {
            return Ok(stop);
        }
        if state.standing.as_ref().is_none_or(|(it, _)| *it != stop) {
            return Err(faults::stop_changed());
        }
        if let Some(Present { publication, system_id, timeline, wal_end, .. }) = found {
            let publication = serde_json::to_value(&publication).ok();
            let remembered = &mut state.remembered;
            (remembered.system_id, remembered.timeline) = (system_id, timeline);
            remembered.publication = publication;
            state.saw(wal_end);
        }
        state.remembered.stop.take_if(|it| *it == stop);
        state.remembered.restores += u64::from(stop.code == WENT_BACK);
        let written = state.memory.is_none() || state.write(&self.parts.source.slot);
        if place == Place::StateFile && !written {
            return Err(faults::stop_unwritable());
        }
        state.remember_last();
        state.standing = None;
        state.resumed = state.halted.is_some();
        tracing::info!(target: "audit", who = by, action = "resume", code = stop.code, reason, "the stop is acknowledged");
        Ok(stop)
    }

    /// The publication as earlier processes knew it, for a process that begins.
    pub fn known_publication(self: &Arc<Self>) -> KnownPublication {
        self.restored(Some(Box::new(Remembering(Arc::clone(self)))))
    }

    /// The same, and what this process sees is passed to `keeper`.
    pub fn restored(&self, keeper: Option<Box<dyn PublicationKeeper>>) -> KnownPublication {
        let state = self.state();
        let Some(memory) = &state.memory else { return KnownPublication::default() };
        let kept = state.remembered.publication.clone();
        let kept = kept.and_then(|kept| serde_json::from_value(kept).ok());
        KnownPublication::restored(kept, memory.seen(), &self.parts.source, keeper)
    }

    /// Whether this is a command that did not find the state file.
    pub fn lacks_file(&self) -> bool {
        self.parts.missing_file.is_some()
    }

    /// The fault where no stop stands.
    pub fn nothing(&self) -> Fault {
        faults::nothing_to_resume(self.parts.missing_file.as_deref())
    }

    /// Where the stop of a gap would be kept.
    pub fn place_of_gaps(&self) -> Place {
        let state = self.state();
        if state.memory.is_some() {
            Place::StateFile
        } else if self.parts.surroundings.has_topic() && !state.topic_unreadable {
            Place::Topic
        } else {
            Place::Nowhere
        }
    }

    /// The first event waits until the dead-letter topic was read, because a stop would be there.
    pub fn waits_for_topic(&self) -> bool {
        !self.parts.is_polling && self.place_of_gaps() == Place::Topic
    }

    pub fn topic_is_readable(&self, is_readable: bool) {
        self.state().topic_unreadable = !is_readable;
    }

    /// The dead-letter topic has a stop of this relay.
    pub fn found_in_topic(&self, stop: Stop) {
        let mut state = self.state();
        if !state.has_known_stop() {
            state.standing = Some((stop, Place::Topic));
        }
    }

    /// Where the last process read the slot, and how far the WAL had come.
    pub fn last_place(&self) -> Option<(SystemTimeline, Lsn)> {
        self.state().last.clone()
    }

    /// How often the database had gone back on its timeline, and somebody has acknowledged that.
    pub fn restores(&self) -> u64 {
        self.state().remembered.restores
    }

    /// A session is of this system.
    pub fn note_system(&self, system_id: &str) {
        self.state().met_system = Some(system_id.to_owned());
    }

    /// The session has ended: what is seen from here on is judged with the next one, in this process or in
    /// another.
    pub fn note_session_end(&self) {
        self.state().reads = false;
    }

    /// This process reads the slot at this place.
    pub fn note_reading(&self, place: &SystemTimeline) {
        let mut state = self.state();
        state.reads = true;
        if let Some(seen) = state.unwritten.take() {
            state.saw(seen);
        }
        let is_new = std::mem::take(&mut state.is_publication_unwritten);
        let known = (state.remembered.system_id.as_str(), state.remembered.timeline);
        if state.memory.is_some() && (is_new || known != (&place.system_id, place.timeline)) {
            state.remembered.system_id.clone_from(&place.system_id);
            state.remembered.timeline = place.timeline;
            state.take_stop_of_file(&self.parts.source.slot);
            state.is_publication_unwritten = !state.write(&self.parts.source.slot);
        }
    }
}

impl State {
    /// Whether a stop stands that this version knows; another version may have stopped for another reason.
    fn has_known_stop(&self) -> bool {
        self.standing.as_ref().is_some_and(|(stop, _)| stop.fault().is_some())
    }

    /// Takes over the stop that the file holds; one of another slot is ignored.
    fn take_over(&mut self, remembered: Remembered, slot: &str) {
        if remembered.slot == slot {
            self.standing = remembered.stop.clone().map(|stop| (stop, Place::StateFile));
            self.remembered = remembered;
        }
        self.remember_last();
    }

    /// Whether another process has acknowledged the stop in the file meanwhile. Fails if it has kept another one,
    /// which nobody was shown.
    fn is_acknowledged(&mut self, stop: &Stop, slot: &str) -> Result<bool, Fault> {
        let found = self.memory.as_mut().and_then(Memory::reload);
        let Some(found) = found.filter(|found| found.slot == slot) else { return Ok(false) };
        let was_kept = self.remembered.stop.as_ref() == Some(stop);
        let kept = found.stop.clone();
        let standing = self.standing.clone();
        self.take_over(found, slot);
        match kept {
            Some(kept) if kept != *stop => {
                // A relay that waits begins anew, and stops with that one.
                self.resumed = self.halted.is_some();
                Err(faults::stop_changed())
            }
            None if was_kept => {
                self.resumed = self.halted.is_some();
                Ok(true)
            }
            _ => {
                self.standing = standing;
                Ok(false)
            }
        }
    }

    /// Before anything that this process sees is written.
    fn remember_last(&mut self) {
        let Remembered { system_id, timeline, .. } = &self.remembered;
        let place = SystemTimeline { system_id: system_id.clone(), timeline: *timeline };
        let seen = self.memory.as_ref().map(Memory::seen);
        self.last = seen.filter(|_| !place.system_id.is_empty()).map(|seen| (place, seen));
    }

    /// The process that has waited begins anew.
    fn begin_anew(&mut self) {
        (self.reads, self.unwritten) = (false, None);
        self.topic_unreadable = false;
        self.remember_last();
    }

    fn tell_kept(&self, stop: &Stop, place: Place) {
        let file = self.memory.as_ref().filter(|_| place == Place::StateFile);
        let file = file.map(|memory| memory.path().display().to_string());
        tracing::info!(reason = stop.code, file, "the stop stands until it is acknowledged");
    }

    /// Before a write that is not about a stop: one that another process has kept in the file, or acknowledged
    /// there, stays so. A stop that this process has kept is judged where somebody acknowledges it.
    fn take_stop_of_file(&mut self, slot: &str) {
        if matches!(self.standing, Some((_, Place::StateFile))) {
            return;
        }
        let newer = self.memory.as_mut().and_then(Memory::reload);
        if let Some(newer) = newer.filter(|newer| newer.slot == slot) {
            self.remembered.stop = newer.stop;
            self.remembered.restores = self.remembered.restores.max(newer.restores);
        }
    }

    /// True when the file has what is remembered.
    fn write(&mut self, slot: &str) -> bool {
        let Some(memory) = &mut self.memory else { return false };
        slot.clone_into(&mut self.remembered.slot);
        let written = memory.write(&self.remembered);
        self.note(written.err())
    }

    fn saw(&mut self, lsn: Lsn) {
        let saw = self.memory.as_ref().map_or(Ok(()), |memory| memory.saw(lsn));
        self.note(saw.err());
    }

    fn note(&mut self, error: Option<std::io::Error>) -> bool {
        let Some(error) = error else { return true };
        if !std::mem::replace(&mut self.write_failed, true) {
            tracing::warn!(code = "state-file.unwritten", error = %error, "the state file cannot be written: the next process does not know what this one knows of the publication, nor why it stopped");
        }
        false
    }
}

/// Writes what is known of the publication to the state file.
#[derive(Debug)]
struct Remembering(Arc<StandingStops>);

impl PublicationKeeper for Remembering {
    fn keep(&self, known: &KeptPublication) {
        let mut state = self.0.state();
        state.remembered.publication = serde_json::to_value(known).ok();
        // The first one may be in doubt, and is judged before: the next process must doubt it, too, if this
        // one ends sooner.
        state.is_publication_unwritten = !state.reads;
        if state.reads {
            state.take_stop_of_file(&self.0.parts.source.slot);
            state.write(&self.0.parts.source.slot);
        }
    }

    fn saw(&self, wal_end: Lsn) {
        let mut state = self.0.state();
        // It may be a database that has gone back: the next process must see that, too, if this one
        // is killed before it has judged.
        match state.reads {
            true => state.saw(wal_end),
            false => state.unwritten = Some(wal_end),
        }
    }
}

#[cfg(test)]
#[path = "stops_tests.rs"]
pub(super) mod tests;

//! Decides whether a dead letter may be written now, and which events must become dead letters
//! instead of being published.
//!
//! No dead letter is written before the dead-letter topic was read or is known to be unreadable,
//! because it shows what an earlier process has just written, which keys are parked, and whether
//! this relay was stopped and nobody has acknowledged that ([`super::stops`]). After a takeover the
//! topic is read again: the peer has written what no earlier reading has shown.

use std::sync::Arc;

use super::control::PublicationInDoubt;
use super::faults;
use super::ports::{Gauge, Meters};
use super::stops::{Place, StandingStops};
use crate::base::error::{Exit, Fault};
use crate::base::event::{Outbound, Position};
use crate::dead_letter::record::StopRecordKind;
use crate::dead_letter::tail_event::{ReadRequests, TailEvent};
use crate::dead_letter::topic_stops::TopicStops;
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause, DeadLetterWriter, unreadable};
use crate::delivery::breaker::Breaker;
use crate::delivery::parked::ParkedKeys;
use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
use crate::mutants::{Mutant, on};

/// Class of an event whose route leads into the dead-letter topic.
const CLASS_DEAD_LETTER_TOPIC: &str = "route.dead-letter-topic";

/// Whether the dead-letter topic was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    Unread,
    /// It must be read again from now on, and this request says so.
    Requested(u64),
    Read,
    Unreadable,
}

pub struct DeadLetterGate {
    on_dead_letter: OnDeadLetter,
    writer: DeadLetterWriter,
    breaker: Breaker,
    parked: ParkedKeys,
    /// Somebody reads the topic; not every sink can.
    is_read: bool,
    history: History,
    /// It was read once, or nothing of it came for so long that events do not wait for it.
    has_looked: bool,
    requests: ReadRequests,
    stops: Arc<StandingStops>,
    /// The stops that are in the topic, as far as it was read.
    in_topic: TopicStops,
    in_doubt: Option<PublicationInDoubt>,
    meters: Arc<dyn Meters>,
}

impl DeadLetterGate {
    pub fn new(
        delivery: &DeliverySettings,
        writer: DeadLetterWriter,
        is_read: bool,
        requests: ReadRequests,
        meters: &Arc<dyn Meters>,
        stops: Arc<StandingStops>,
    ) -> DeadLetterGate {
        DeadLetterGate {
            on_dead_letter: delivery.on_dead_letter,
            breaker: Breaker::new(writer.settings.burst_max, writer.settings.burst_window),
            writer,
            parked: ParkedKeys::default(),
            is_read,
            history: History::Unread,
            has_looked: false,
            requests,
            stops,
            in_topic: TopicStops::default(),
            in_doubt: None,
            meters: Arc::clone(meters),
        }
    }

    /// The relay will stop with this fault, and may be killed before it has.
    pub fn keep_stop_early(&self, fault: &Fault) {
        self.stops.keep_early(fault);
    }

    /// Whether an event that cannot be published stops the relay.
    pub fn halts(&self) -> bool {
        self.on_dead_letter == OnDeadLetter::Halt
    }

    /// Whether events may come in: not before it is known which keys are parked, and, for a process
    /// that begins, whether a stop that only the topic would have stands. One that lives compares
    /// slot and publication itself.
    pub fn admits(&self) -> bool {
        let parks_keys = self.on_dead_letter == OnDeadLetter::ParkKey;
        let needs = parks_keys || (!self.has_looked && self.stops.waits_for_topic());
        !needs || !self.awaits_history() || on(Mutant::LettersUnreadAtStart)
    }

    /// Postgres says that rows may be missing, and no earlier process has left what it
    /// knew.
    pub fn publication_in_doubt(&mut self, doubt: PublicationInDoubt) -> Result<(), Fault> {
        match self.stops.place_of_gaps() {
            _ if on(Mutant::DoubtForgotten) => Ok(()),
            Place::StateFile => Err(doubt.fault),
            Place::Topic if self.awaits_history() => {
                self.in_doubt = Some(doubt);
                Ok(())
            }
            place => self.judge_doubt(doubt, place),
        }
    }

    fn judge_doubt(&self, doubt: PublicationInDoubt, place: Place) -> Result<(), Fault> {
        let PublicationInDoubt { fault, digest } = doubt;
        if self.in_topic.publication.as_ref() == Some(&digest) {
            return Ok(());
        }
        if place != Place::Nowhere {
            return Err(fault);
        }
        // Nobody could acknowledge it.
        let (what, mend) = (&fault.what, &fault.mend);
        tracing::warn!(
            code = "publication.young",
            help = mend,
            "{what}; nothing would keep a stop, so the relay goes on: delivery.state_file names a file"
        );
        Ok(())
    }

    /// Whether the dead-letter topic must still be read.
    pub fn awaits_history(&self) -> bool {
        self.is_read
            && !self.halts()
            && matches!(self.history, History::Unread | History::Requested(_))
    }

    /// Another relay has held the slot since this one held it.
    pub fn read_again(&mut self) {
        self.history = History::Requested(self.requests.request());
    }

    /// Dead letters say which database they come from.
    pub fn learn_system(&self, system_id: &str) {
        self.writer.system.learn(system_id);
    }

    pub fn writer(&self) -> &DeadLetterWriter {
        &self.writer
    }

    /// No key is parked, and the event's destination is not the dead-letter topic.
    #[inline]
    pub fn is_open_to(&self, event: &Outbound<'_>) -> bool {
        self.parked.is_empty() && !self.leads_here(event)
    }

    /// Why the event must become a dead letter (class and text), if it must.
    pub fn divert(
        &self,
        event: &Outbound<'_>,
        position: Position,
    ) -> Option<(&'static str, &'static str)> {
        if self.leads_here(event) {
            let text = "its route leads into the dead-letter topic";
            return Some((CLASS_DEAD_LETTER_TOPIC, text));
        }
        let parked = event.key.is_some_and(|key| self.parked.holds(key, position));
        let parked = parked && !on(Mutant::ParkedKeyPublished);
        parked.then_some((CLASS_PARKED, "an earlier event of its key is a dead letter"))
    }

    /// Whether the event's destination is the dead-letter
    /// topic, where readers would take it for a dead letter.
    #[inline]
    fn leads_here(&self, event: &Outbound<'_>) -> bool {
        let address = &self.writer.settings.address;
        address.is_reached_by(event.exchange, event.topic) && !self.halts()
    }

    /// Whether a dead letter of this class parks its key. One of the class `parked` does not park
    /// it again: otherwise a release could never free a busy key.
    pub fn parks(&self, class: &str) -> bool {
        self.on_dead_letter == OnDeadLetter::ParkKey && class != CLASS_PARKED
    }

    /// Whether this dead letter may be written now: not before the topic was read. Returns a fault
    /// if there are too many. `counts` is false for one that was allowed before.
    pub fn allow(&mut self, cause: &DeadLetterCause, counts: bool) -> Result<bool, Fault> {
        if self.awaits_history() {
            return Ok(false);
        }
        if cause.class == CLASS_PARKED || !counts {
            return Ok(true);
        }
        let allowed = self.breaker.allow(cause.failed_unix_us);
        let open = |burst| faults::breaker_open(&burst, cause, &self.writer.settings);
        allowed.map(|()| true).map_err(open)
    }

    /// The sink has taken a dead letter, which is not confirmed yet. True when that has parked a key.
    pub fn note_dead_letter(
        &mut self,
        key: Option<&[u8]>,
        subject: &str,
        cause: &DeadLetterCause,
        trace_id: Option<&str>,
    ) -> bool {
        if cause.class != CLASS_PARKED {
            self.breaker.count(cause.failed_unix_us, &cause.class);
        }
        let parks = key.filter(|_| cause.parks_key);
        if let Some(key) = parks {
            self.parked.park(key, cause.position);
            self.update_parked_gauge();
        }
        tracing::warn!(
            code = "event.dead-lettered", class = cause.class, attempts = cause.attempts,
            lsn = %cause.position.commit_lsn, subject, trace_id,
            help = help(cause),
            "dead letter: {}", cause.reason
        );
        parks.is_some()
    }

    /// These events come again as new ones, and the dead letters in their places may not have been written.
    pub fn forget_letters(&mut self, letters: &[Position]) {
        if on(Mutant::DroppedLetterParks) {
            return;
        }
        letters.iter().for_each(|position| self.parked.forget(*position));
        self.update_parked_gauge();
    }

    pub fn on_tail_event(&mut self, event: TailEvent, now_unix_us: i64) -> Result<(), Fault> {
        if self.halts() {
            return Ok(());
        }
        let parks_keys = self.on_dead_letter == OnDeadLetter::ParkKey;
        match event {
            TailEvent::Parked(key, position) if parks_keys => self.parked.seen(key, position),
            TailEvent::Released(key) => self.parked.released(key),
            TailEvent::DeadLetter { .. } if on(Mutant::BreakerForgotten) => {}
            TailEvent::DeadLetter { failed_unix_us, class } if self.history == History::Unread => {
                self.breaker.count_read(failed_unix_us, &class);
            }
            TailEvent::ReadsAgain(number) if self.history == History::Requested(number) => {
                // Those of this process are in the topic, too.
                self.breaker.forget();
                self.in_topic.standing.clear();
                self.history = History::Unread;
            }
            TailEvent::Stop(record) => {
                self.in_topic.apply(&record);
                let is_of_breaker = record.is_of_breaker() && self.history == History::Unread;
                if is_of_breaker && record.kind == StopRecordKind::Resumed {
                    // Whatever the clocks say, what stands before it in the topic is acknowledged.
                    self.breaker.forget();
                    self.breaker.resumed(record.body.unix_us.min(now_unix_us));
                }
            }
            TailEvent::CaughtUp
                if matches!(self.history, History::Unread | History::Unreadable) =>
            {
                (self.history, self.has_looked) = (History::Read, true);
                self.stops.topic_is_readable(true);
                self.judge_stops()?;
            }
            TailEvent::Silent(reason)
                if self.awaits_history() && !parks_keys && !self.has_looked =>
            {
                self.has_looked = true;
                tracing::error!(
                    code = "dead-letter.unread",
                    error = reason,
                    "nothing of the dead-letter topic could be read: events are published, although a stop \
                     that is kept there is not seen; dead letters wait until it can be read"
                );
            }
            TailEvent::Unreadable(reason) if self.history != History::Unreadable => {
                if self.awaits_history() && parks_keys {
                    return Err(unreadable(&reason, &self.writer.settings));
                }
                self.history = History::Unreadable;
                self.stops.topic_is_readable(false);
                tracing::warn!(
                    code = "dead-letter.unread",
                    error = reason,
                    "the dead-letter topic cannot be read: a stop that is kept there is not seen"
                );
                if let Some(doubt) = self.in_doubt.take() {
                    self.judge_doubt(doubt, Place::Nowhere)?;
                }
            }
            TailEvent::Parked(..)
            | TailEvent::DeadLetter { .. }
            | TailEvent::Unreadable(_)
            | TailEvent::Silent(_)
            | TailEvent::CaughtUp
            | TailEvent::ReadsAgain(_) => {}
        }
        self.update_parked_gauge();
        Ok(())
    }

    /// The topic was read: a stop of an earlier process is one of this process, too.
    fn judge_stops(&mut self) -> Result<(), Fault> {
        let standing = std::mem::take(&mut self.in_topic.standing);
        for stop in standing {
            if let Some(fault) = stop.fault() {
                if fault.exit == Exit::Halted {
                    self.breaker.opened();
                }
                self.stops.found_in_topic(stop);
                return Err(fault);
            }
        }
        match self.in_doubt.take() {
            Some(doubt) => self.judge_doubt(doubt, Place::Topic),
            None => Ok(()),
        }
    }

    pub fn update_breaker_gauge(&self, now_unix_us: i64) {
        let open = self.breaker.is_open(now_unix_us);
        self.meters.set(Gauge::BreakerOpen, u64::from(open));
    }

    fn update_parked_gauge(&self) {
        self.meters.set(Gauge::ParkedKeys, self.parked.len() as u64);
    }
}

/// How to go on after a dead letter. A replay passes over one that never became an event or leads back
/// here; one of all events of a parked key keeps their order.
fn help(cause: &DeadLetterCause) -> &'static str {
    if cause.incomplete || cause.class == CLASS_DEAD_LETTER_TOPIC {
        "it cannot be replayed: walrelay dlq list has its ID; correct the row or [route], publish the event anew from its source, then: walrelay dlq discard ID (docs/dead-letters.md, \"Replay\", which has another order for park_key)"
    } else if cause.parks_key || cause.class == CLASS_PARKED {
        "its key is parked, and walrelay dlq list shows ID and KEY: walrelay dlq show ID; once the cause is removed: walrelay dlq replay --key KEY, then: walrelay dlq release --key KEY"
    } else {
        "walrelay dlq list, walrelay dlq show ID; once the cause is removed: walrelay dlq replay ID"
    }
}

#[cfg(test)]
#[path = "dead_letter_gate_tests.rs"]
mod tests;

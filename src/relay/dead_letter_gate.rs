//! Decides whether a dead letter may be written now, and which events must become dead letters
//! instead of being published.
//!
//! No dead letter is written before the dead-letter topic was read or is known to be unreadable,
//! because it shows what an earlier process has just written, and which keys are parked. After a
//! takeover the topic is read again: the peer has written what no earlier reading has shown.

use std::sync::Arc;

use super::faults;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Position};
use crate::dead_letter::tail;
use crate::dead_letter::tail_event::{ReadRequests, TailEvent};
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause, DeadLetterWriter};
use crate::delivery::breaker::Breaker;
use crate::delivery::parked::ParkedKeys;
use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
use crate::metrics::Metrics;

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

pub(crate) struct DeadLetterGate {
    on_dead_letter: OnDeadLetter,
    writer: DeadLetterWriter,
    breaker: Breaker,
    parked: ParkedKeys,
    history: History,
    requests: ReadRequests,
    metrics: Arc<Metrics>,
}

impl DeadLetterGate {
    pub(super) fn new(
        delivery: &DeliverySettings,
        writer: DeadLetterWriter,
        requests: ReadRequests,
        metrics: &Arc<Metrics>,
    ) -> DeadLetterGate {
        DeadLetterGate {
            on_dead_letter: delivery.on_dead_letter,
            breaker: Breaker::new(writer.settings.burst_max, writer.settings.burst_window),
            writer,
            parked: ParkedKeys::default(),
            history: History::Unread,
            requests,
            metrics: Arc::clone(metrics),
        }
    }

    /// Whether an event that cannot be published stops the relay.
    pub(super) fn halts(&self) -> bool {
        self.on_dead_letter == OnDeadLetter::Halt
    }

    /// Whether events may come in: not before it is known which keys are parked.
    pub(super) fn admits(&self) -> bool {
        self.on_dead_letter != OnDeadLetter::ParkKey || !self.awaits_history()
    }

    /// Whether the dead-letter topic must still be read.
    pub(super) fn awaits_history(&self) -> bool {
        !self.halts() && matches!(self.history, History::Unread | History::Requested(_))
    }

    /// Another relay has held the slot since this one held it.
    pub(super) fn read_again(&mut self) {
        self.history = History::Requested(self.requests.request());
    }

    /// Dead letters say which database they come from.
    pub(super) fn learn_system(&self, system_id: &str) {
        self.writer.system.learn(system_id);
    }

    pub(super) fn writer(&self) -> &DeadLetterWriter {
        &self.writer
    }

    /// No key is parked, and the event's destination is not the dead-letter topic.
    #[inline]
    pub(super) fn is_open_to(&self, event: &Outbound<'_>) -> bool {
        self.parked.is_empty() && !self.leads_here(event)
    }

    /// Why the event must become a dead letter (class and text), if it must.
    pub(super) fn diverts(
        &self,
        event: &Outbound<'_>,
        position: Position,
    ) -> Option<(&'static str, &'static str)> {
        if self.leads_here(event) {
            let text = "its route leads into the dead-letter topic";
            return Some((CLASS_DEAD_LETTER_TOPIC, text));
        }
        let parked = event.key.is_some_and(|key| self.parked.holds(key, position));
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
    pub(super) fn parks(&self, class: &str) -> bool {
        self.on_dead_letter == OnDeadLetter::ParkKey && class != CLASS_PARKED
    }

    /// Whether this dead letter may be written now: not before the topic was read. Returns a fault
    /// if there are too many. `counts` is false for one that was allowed before.
    pub(super) fn allow(&mut self, cause: &DeadLetterCause, counts: bool) -> Result<bool, Fault> {
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

    /// The sink has taken a dead letter. True when that has parked a key.
    pub(super) fn written(
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
            lsn = %cause.position.commit_lsn, subject, trace_id, "dead letter: {}", cause.reason
        );
        parks.is_some()
    }

    pub(super) fn on_tail_event(&mut self, event: TailEvent) -> Result<(), Fault> {
        if self.halts() {
            return Ok(());
        }
        let parks_keys = self.on_dead_letter == OnDeadLetter::ParkKey;
        match event {
            TailEvent::Parked(key, position) if parks_keys => self.parked.seen(key, position),
            TailEvent::Released(key) => self.parked.released(key),
            TailEvent::DeadLetter { failed_unix_us, class } if self.history == History::Unread => {
                self.breaker.count(failed_unix_us, &class);
            }
            TailEvent::ReadsAgain(number) if self.history == History::Requested(number) => {
                // Those of this process are in the topic, too.
                self.breaker.forget();
                self.history = History::Unread;
            }
            TailEvent::CaughtUp if self.history == History::Unread => self.history = History::Read,
            TailEvent::Unreadable(reason) if self.history != History::Unreadable => {
                if self.awaits_history() && parks_keys {
                    return Err(tail::unreadable(&reason, &self.writer.settings));
                }
                self.history = History::Unreadable;
                tracing::warn!(
                    code = "dead-letter.unread",
                    error = reason,
                    "the dead-letter topic cannot be read"
                );
            }
            TailEvent::Parked(..)
            | TailEvent::DeadLetter { .. }
            | TailEvent::Unreadable(_)
            | TailEvent::CaughtUp
            | TailEvent::ReadsAgain(_) => {}
        }
        self.update_parked_gauge();
        Ok(())
    }

    pub(super) fn update_breaker_gauge(&self, now_unix_us: i64) {
        let open = self.breaker.is_open(now_unix_us);
        self.metrics.dlq_breaker_open.set(i64::from(open));
    }

    fn update_parked_gauge(&self) {
        self.metrics.dlq_parked_keys.set(i64::try_from(self.parked.len()).unwrap_or(i64::MAX));
    }
}

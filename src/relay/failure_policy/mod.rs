//! What becomes of an event that cannot be published: another attempt, a letter in the dead-letter
//! topic, or the end of the relay.
//!
//! The pure parts ([`Retries`], [`Breaker`], [`ParkedKeys`]) count and remember; here it is decided.
//!
//! * An event that is given up stays given up: over a rebuilt sink its letter is published again,
//!   and counts neither for the breaker nor for its key a second time.
//! * No letter is written before the dead-letter topic was read, or could not be: it says what an
//!   earlier process has just written, and which keys are parked.
//! * A letter that fails is an outage: tried for ever, and the slot is held.

mod failures;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::faults;
use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Position, Sequence};
use crate::base::log_throttle::LogThrottle;
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause, DeadLetterWriter};
use crate::delivery::breaker::Breaker;
use crate::delivery::parked::ParkedKeys;
use crate::delivery::retry::Retries;
use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
use crate::metrics::Metrics;
use crate::sink::{Failure, Sink};

/// Class of an event whose route leads into the dead-letter topic.
const CLASS_DEAD_LETTER_TOPIC: &str = "route.dead-letter-topic";
/// Dead letters that are told of in one second.
const LETTERS_TOLD: u32 = 10;
/// The period in which lines of the log are counted.
const LINES_PERIOD: Duration = Duration::from_secs(1);

/// Now, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) unix_us: i64,
}

impl Moment {
    pub(super) fn now() -> Moment {
        Moment { instant: Instant::now(), unix_us: super::unix_now_us() }
    }
}

/// How an event goes to the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As it is.
    Healthy,
    /// As it is, and alone.
    Alone,
    /// As a letter.
    Dead(DeadLetterCause),
}

/// What a failed publish means for the relay as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing: it was about its event, and that is taken care of.
    Decided,
    /// The same: it will be tried again.
    Waits {
        /// Attempts that have failed.
        attempts: u32,
        /// Until the next, at least.
        wait: Duration,
        /// Why it failed.
        reason: String,
    },
    /// The same, and what waits behind the event in the sink comes back next.
    KeyParked,
    /// A letter cannot be written for now.
    LetterWaits(String),
    /// The sink must be built anew.
    Outage(String),
}

/// Why an event is given up that the sink does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason<'a> {
    pub(super) class: &'a str,
    pub(super) text: &'a str,
    /// Attempts that were just made and have failed.
    pub(super) attempts: u32,
}

/// What is known of the dead-letter topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    Unread,
    Read,
    Unreadable,
}

/// An event that the sink has and that is to be given up.
#[derive(Debug)]
struct Dying {
    sequence: Sequence,
    failure: Failure,
    position: Position,
}

/// Decides, and remembers what was decided of events that are not settled.
pub(super) struct Undertaker {
    policy: OnDeadLetter,
    mailbox: DeadLetterWriter,
    retries: Retries,
    breaker: Breaker,
    parked: ParkedKeys,
    /// Events whose letters are on their way.
    buried: HashMap<Sequence, DeadLetterCause>,
    /// Refused together with others: published alone next time.
    suspects: HashSet<Sequence>,
    history: History,
    /// Wait until the topic was read.
    dying: Vec<Dying>,
    /// Events that will never be confirmed; the relay is about to stop because of them.
    hopeless: usize,
    retry_lines: LogThrottle,
    dead_letter_lines: LogThrottle,
    metrics: Arc<Metrics>,
}

impl Undertaker {
    pub(super) fn new(
        delivery: &DeliverySettings,
        mailbox: DeadLetterWriter,
        metrics: &Arc<Metrics>,
    ) -> Undertaker {
        let backoff = Backoff::new(delivery.backoff_base, delivery.backoff_cap);
        let settings = &mailbox.settings;
        Undertaker {
            policy: delivery.on_dead_letter,
            retries: Retries::new(delivery.attempts_max, delivery.retry_budget_percent, backoff),
            breaker: Breaker::new(settings.burst_max, settings.burst_window),
            mailbox,
            parked: ParkedKeys::default(),
            buried: HashMap::new(),
            suspects: HashSet::new(),
            history: History::Unread,
            dying: Vec::new(),
            hopeless: 0,
            retry_lines: LogThrottle::new(1, LINES_PERIOD),
            dead_letter_lines: LogThrottle::new(LETTERS_TOLD, LINES_PERIOD),
            metrics: Arc::clone(metrics),
        }
    }

    /// Does an event that cannot be published stop the relay?
    pub(super) fn halts(&self) -> bool {
        self.policy == OnDeadLetter::Halt
    }

    /// May events come in? Not before it is known which keys are parked.
    pub(super) fn may_take_in(&self) -> bool {
        self.policy != OnDeadLetter::ParkKey || !self.is_unread()
    }

    /// Is the dead-letter topic still to be read?
    pub(super) fn is_unread(&self) -> bool {
        !self.halts() && self.history == History::Unread
    }

    pub(super) fn mailbox(&self) -> &DeadLetterWriter {
        &self.mailbox
    }

    /// Events that will never be confirmed.
    pub(super) fn hopeless(&self) -> usize {
        self.hopeless
    }

    /// How this event goes to the sink.
    #[inline]
    pub(super) fn way(&self, sequence: Sequence, event: &Outbound<'_>, position: Position) -> Way {
        let quiet = self.buried.is_empty() && self.suspects.is_empty() && self.parked.is_empty();
        if quiet && !self.leads_to_letters(event) {
            return Way::Healthy;
        }
        self.way_of(sequence, event, position)
    }

    #[cold]
    fn way_of(&self, sequence: Sequence, event: &Outbound<'_>, position: Position) -> Way {
        let dead = |class, text| {
            let reason = Reason { class, text, attempts: 0 };
            Way::Dead(self.cause(sequence, event.key, reason, position, Moment::now()))
        };
        if let Some(cause) = self.buried.get(&sequence) {
            Way::Dead(cause.clone())
        } else if self.leads_to_letters(event) {
            dead(CLASS_DEAD_LETTER_TOPIC, "its route leads into the dead-letter topic")
        } else if event.key.is_some_and(|key| self.parked.holds(key, position)) {
            dead(CLASS_PARKED, "an earlier event of its key is a dead letter")
        } else if self.suspects.contains(&sequence) {
            Way::Alone
        } else {
            Way::Healthy
        }
    }

    /// Would the event be taken for a letter where it goes?
    #[inline]
    fn leads_to_letters(&self, event: &Outbound<'_>) -> bool {
        let address = &self.mailbox.settings.address;
        address.is_reached_by(event.exchange, event.topic) && !self.halts()
    }

    /// Why an event is given up. One that is given up already keeps its first cause.
    pub(super) fn cause(
        &self,
        sequence: Sequence,
        key: Option<&[u8]>,
        reason: Reason<'_>,
        position: Position,
        now: Moment,
    ) -> DeadLetterCause {
        if let Some(cause) = self.buried.get(&sequence) {
            return cause.clone();
        }
        let before = self.retries.so_far(sequence, now.unix_us);
        DeadLetterCause {
            class: reason.class.to_owned(),
            reason: reason.text.to_owned(),
            attempts: before.count + reason.attempts,
            first_failed_unix_us: before.first_failed_unix_us,
            failed_unix_us: now.unix_us,
            position,
            incomplete: false,
            // What follows parks nothing: a release would never catch up with a busy key.
            parks_key: self.policy == OnDeadLetter::ParkKey
                && key.is_some()
                && reason.class != CLASS_PARKED,
        }
    }

    /// May this letter be written now? `false` before the topic was read; a fault when there are
    /// too many. What follows a letter of its key is no sign of anything new.
    pub(super) fn allow(
        &mut self,
        sequence: Sequence,
        cause: &DeadLetterCause,
    ) -> Result<bool, Fault> {
        if self.history == History::Unread {
            return Ok(false);
        }
        if cause.class == CLASS_PARKED || self.buried.contains_key(&sequence) {
            return Ok(true);
        }
        self.breaker
            .allow(cause.failed_unix_us)
            .map(|()| true)
            .map_err(|burst| faults::breaker_open(&burst, cause, &self.mailbox.settings))
    }

    /// The sink has taken the letter. Says whether that has parked a key.
    pub(super) fn buried(
        &mut self,
        sequence: Sequence,
        key: Option<&[u8]>,
        subject: &str,
        cause: DeadLetterCause,
    ) -> bool {
        if self.buried.contains_key(&sequence) {
            return false;
        }
        self.retries.given_up(sequence);
        if cause.class != CLASS_PARKED {
            self.breaker.count(cause.failed_unix_us, &cause.class);
        }
        let parks = key.filter(|_| cause.parks_key);
        if let Some(key) = parks {
            self.parked.park(key, cause.position);
            self.show_parked();
        }
        if let Some(untold) = self.dead_letter_lines.permit(Instant::now()) {
            let lsn = cause.position.commit_lsn;
            tracing::warn!(
                class = cause.class, attempts = cause.attempts, lsn = %lsn, subject, untold,
                "dead letter: {}", cause.reason
            );
        }
        self.buried.insert(sequence, cause);
        parks.is_some()
    }

    /// An earlier process has tried this event.
    pub(super) fn has_failed_before(&mut self, sequence: Sequence, attempts: u32) {
        self.retries.has_failed_before(sequence, attempts, super::unix_now_us());
    }

    /// This event was refused together with others.
    pub(super) fn suspect(&mut self, sequence: Sequence) {
        self.suspects.insert(sequence);
    }

    /// An event that may be tried again now; `published` events were handed over until now, and
    /// there may be room for more.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        published: Sequence,
        has_room: bool,
    ) -> Option<Sequence> {
        self.retries.take_due(now, published, has_room)
    }

    /// The broker has the event, or its letter: then the cause.
    #[inline]
    pub(super) fn settled(&mut self, sequence: Sequence) -> Option<DeadLetterCause> {
        self.retries.settled(sequence);
        if !self.suspects.is_empty() {
            self.suspects.remove(&sequence);
        }
        if self.buried.is_empty() {
            return None;
        }
        let cause = self.buried.remove(&sequence)?;
        self.metrics.dlq_published.inc();
        Some(cause)
    }

    /// What the dead-letter topic tells.
    pub(super) fn hear(
        &mut self,
        news: TailEvent,
        sink: Option<&mut Box<dyn Sink>>,
        now: Moment,
    ) -> Result<(), Fault> {
        if self.halts() {
            return Ok(());
        }
        match news {
            TailEvent::Parked(key, position) if self.policy == OnDeadLetter::ParkKey => {
                self.parked.seen(key, position);
            }
            TailEvent::Released(key) => self.parked.released(key),
            TailEvent::Letter { failed_unix_us, class } if self.history == History::Unread => {
                self.breaker.count(failed_unix_us, &class);
            }
            TailEvent::CaughtUp => self.history = History::Read,
            TailEvent::Unreadable(reason) if self.history != History::Unreadable => {
                if self.history == History::Unread && self.policy == OnDeadLetter::ParkKey {
                    return Err(faults::letters_unreadable(&reason, &self.mailbox.settings));
                }
                self.history = History::Unreadable;
                tracing::warn!(error = reason, "the dead-letter topic cannot be read");
            }
            TailEvent::Parked(..) | TailEvent::Letter { .. } | TailEvent::Unreadable(_) => {}
        }
        self.show_parked();
        let Some(sink) = sink.filter(|_| self.history != History::Unread) else { return Ok(()) };
        let mut outcome = Ok(());
        for dying in std::mem::take(&mut self.dying) {
            outcome = outcome.and(self.give_up(dying, &mut **sink, now).map(drop));
        }
        outcome
    }

    /// Sets the gauge of the breaker.
    pub(super) fn show_breaker(&self, now_unix_us: i64) {
        let open = self.breaker.is_open(now_unix_us);
        self.metrics.dlq_breaker_open.set(i64::from(open));
    }

    fn show_parked(&self) {
        self.metrics.dlq_parked_keys.set(i64::try_from(self.parked.len()).unwrap_or(i64::MAX));
    }

    /// Numbers from `next` on will be given to other events than before.
    pub(super) fn forget(&mut self, next: Sequence) {
        self.retries.forget(next);
        self.buried.retain(|sequence, _| *sequence < next);
        self.suspects.retain(|sequence| *sequence < next);
    }

    /// Everything unsettled comes anew. What was decided of it holds, unless the numbers mean
    /// other events now.
    pub(super) fn rewind(&mut self, renumbered: bool) {
        self.retries.rewind(renumbered);
        self.dying.clear();
        if renumbered {
            self.buried.clear();
            self.suspects.clear();
        }
    }
}

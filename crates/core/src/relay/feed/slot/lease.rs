//! How long no other relay can have the slot.
//!
//! Postgres frees the slot of a relay that it does not hear for `wal_sender_timeout`, and then a peer
//! publishes: what this relay publishes later may be older. So half of that time after the last sign
//! that the session lives, everything that the sink has not published is withdrawn, and the session
//! is given up. A process that was frozen finds the lease expired when it runs again, before it hands
//! anything to the sink; the lease is also shorter by the time for which its clock stood, because its
//! machine was suspended.
//!
//! Postgres ends a session when it has not heard the relay for that time, whatever it sends, and whatever
//! it answers over another connection: both may get through where status updates do not. So no sign
//! counts for longer than two thirds of the time after the last update that has arrived; one is sent at
//! least every third. Acknowledgements of TCP show that it has arrived. `reply_time` in
//! `pg_stat_replication` shows less: it is NULL for a role without `pg_read_all_stats`, and old while the
//! walsender decodes a large transaction, although updates wait that it reads before it looks at the
//! time. A proxy acknowledges by itself: if it takes updates and does not pass them on, while SQL gets
//! through, only the next answer shows that the session has ended.
//!
//! Bytes of the stream are a sign from the time at which its socket was last found empty: they may
//! have waited there since. While the stream is not read, because the window is full or a backlog
//! never leaves the socket empty, Postgres is asked over another connection whether the walsender
//! holds the slot.
//!
//! Pure except for the link: time is an argument.

use std::time::{Duration, Instant};

use crate::base::clock::{MissedTime, earlier};
use crate::mutants::{Mutant, on};
use crate::relay::control::{Walsender, WalsenderAnswer};
use crate::relay::ports::WalsenderLink;
use crate::source::walsender::Activity;

/// Where `wal_sender_timeout` is 0: Postgres waits for ever, but something else may end the walsender.
const LENGTH_WITHOUT_TIMEOUT: Duration = Duration::from_secs(30);
/// Without another sign for this part of the lease, Postgres is asked.
const ASK_AFTER: f64 = 0.75;
/// While the stream is not read. Early, so that most of the lease is left for another session when
/// Postgres ends this one.
const ASK_AFTER_UNREAD: f64 = 0.25;
/// Questions follow each other at this part of the lease.
const ASK_EVERY: f64 = 0.125;

pub(super) struct SessionLease {
    link: WalsenderLink,
    walsender: Option<Walsender>,
    length: Duration,
    /// The session was alive at this time.
    lived_at: Instant,
    /// Postgres has been sent something at this time that has arrived.
    heard_at: Instant,
    /// An update of this session has arrived.
    was_heard: bool,
    /// When it ended.
    ended_at: Option<Instant>,
    /// The time that the clock has missed since the times above.
    missed: MissedTime,
    /// The walsender has ended. As after any other end of a session, confirms of what is in flight count until
    /// the lease expires.
    is_walsender_gone: bool,
    /// When Postgres was asked last, and whether the answer is outstanding.
    asked: Option<(Instant, bool)>,
}

impl SessionLease {
    pub(super) fn new(link: WalsenderLink, now: Instant) -> SessionLease {
        let length = LENGTH_WITHOUT_TIMEOUT;
        SessionLease {
            link,
            walsender: None,
            length,
            lived_at: now,
            heard_at: now,
            was_heard: false,
            ended_at: None,
            missed: MissedTime::default(),
            is_walsender_gone: false,
            asked: None,
        }
    }

    /// A session was opened, whose walsender has heard the relay at `heard_at` last.
    pub(super) fn begin(
        &mut self,
        walsender: Walsender,
        wal_sender_timeout: Option<Duration>,
        heard_at: Instant,
        opened_at: Instant,
    ) {
        self.walsender = Some(walsender);
        self.length = wal_sender_timeout.map_or(LENGTH_WITHOUT_TIMEOUT, |timeout| timeout / 2);
        self.heard_at = self.missed.corrected(heard_at);
        self.lived_at = self.missed.corrected(opened_at);
        (self.was_heard, self.ended_at) = (false, None);
        self.is_walsender_gone = false;
        if on(Mutant::LeaseNeverExpires) {
            self.length = Duration::from_secs(86_400);
        }
    }

    /// The session has ended. Nothing more is sent to the broker, and what it has may be confirmed until the
    /// lease expires.
    pub(super) fn session_ended(&mut self, now: Instant) {
        self.walsender = None;
        self.ended_at.get_or_insert(now);
    }

    /// Until when anything may be sent to the broker: after the end of a session a peer may have the slot
    /// at once, and what is sent later would be older than what the peer publishes.
    pub(super) fn send_until(&self) -> Instant {
        let ended_at = self.ended_at.filter(|_| !on(Mutant::SendsAfterSession));
        ended_at.map_or(self.until(), |ended_at| ended_at.min(self.until()))
    }

    /// The clock has missed so much time, as is noticed now.
    pub(super) fn missed(&mut self, now: Instant, missed: Duration) {
        if on(Mutant::ShortSuspensionsForgotten) && missed < self.length {
            return;
        }
        self.missed.add(now, missed, self.lived_at.min(self.heard_at));
        self.lived_at = earlier(self.lived_at, missed);
        self.heard_at = earlier(self.heard_at, missed);
    }

    /// When it expires without another sign of the session.
    pub(super) fn until(&self) -> Instant {
        if on(Mutant::LeaseByDeafWalsender) {
            return self.lived_at + self.length;
        }
        // Two thirds of the timeout are four thirds of the lease.
        self.lived_at.min(self.heard_at + self.length / 3) + self.length
    }

    /// How long there has been no sign of the session.
    pub(super) fn unheard_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.lived_at)
    }

    /// How long nothing is known to have arrived at Postgres that was sent later.
    pub(super) fn undelivered_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard_at)
    }

    pub(super) fn has_expired(&self, now: Instant) -> bool {
        now >= self.until()
    }

    /// Whether the session is given up. The first update may arrive after the lease has expired, where the
    /// preflight was long: as long as Postgres waits for it, the relay does, and sends nothing.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_awaited = !self.was_heard && now < self.heard_at + 2 * self.length;
        self.has_expired(now) && !(is_awaited && now < self.lived_at + self.length)
    }

    pub(super) fn is_walsender_gone(&self) -> bool {
        self.is_walsender_gone
    }

    fn confirm_alive(&mut self, at: Instant) {
        self.lived_at = self.lived_at.max(self.missed.corrected(at));
    }

    /// Takes the signs of the session, and asks for one if there is none. `lived_at` and `delivered_at`
    /// are those of the stream.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        lived_at: Instant,
        delivered_at: Option<Instant>,
        is_read: bool,
    ) {
        self.confirm_alive(lived_at);
        if let Some(delivered_at) = delivered_at {
            self.heard_at = self.heard_at.max(self.missed.corrected(delivered_at));
            self.was_heard = true;
        }
        while let Some(WalsenderAnswer { pid, activity, .. }) = self.link.answer() {
            let Some((asked_at, _)) = self.asked else { continue };
            self.asked = Some((asked_at, false));
            // The answer may be late, and about an earlier session.
            if self.walsender.as_ref().is_none_or(|walsender| walsender.pid != pid) {
                continue;
            }
            match activity {
                Ok(Activity::Gone) => self.is_walsender_gone = true,
                Ok(Activity::Unasked) => {}
                Ok(_) => self.confirm_alive(asked_at),
                Err(_) if on(Mutant::LeaseByAnyAnswer) => self.confirm_alive(asked_at),
                Err(why) => {
                    tracing::debug!(why, "postgres does not say whether it has the session")
                }
            }
        }
        let Some(walsender) = &self.walsender else { return };
        let ask_after = if is_read { ASK_AFTER } else { ASK_AFTER_UNREAD };
        if self.unheard_for(now) < self.length.mul_f64(ask_after) {
            return;
        }
        let may_ask = self.asked.is_none_or(|(at, outstanding)| {
            !outstanding && now.saturating_duration_since(at) >= self.length.mul_f64(ASK_EVERY)
        });
        if may_ask && self.link.request(walsender.clone()) {
            self.asked = Some((now, true));
        }
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;

//! One replication session after another: taken over, checked to be of the same slot, let go.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::link::{LinkNews, Opened, PeerProgress};
use super::walsender_query::Walsender;
use super::{IDLE_TICK, Relay, faults};
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::health::Phase;
use crate::source::connect::Session;
use crate::source::stream::{Stream, StreamError};

/// How long a Postgres that shuts down may wait for us before we let go of it.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Longest gap between status updates whatever `wal_sender_timeout` allows.
const STATUS_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// What must stay the same from session to session.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) system_id: Option<String>,
    pub(super) timeline: u32,
    /// The walsender of the last session.
    pub(super) own_pid: i32,
    /// Where the slot stood when we first met it.
    pub(super) slot_floor: Lsn,
    pub(super) status_interval: Duration,
}

impl Default for Sessions {
    fn default() -> Sessions {
        let status_interval = STATUS_INTERVAL_MAX;
        Sessions {
            system_id: None,
            timeline: 0,
            own_pid: 0,
            slot_floor: Lsn::ZERO,
            status_interval,
        }
    }
}

impl Sessions {
    /// Takes note of what is taken over.
    fn remember(&mut self, session: &Session, wal_sender_timeout: Option<Duration>) {
        self.system_id = Some(session.system_id.clone());
        self.timeline = session.timeline;
        self.own_pid = session.backend_pid;
        // A third, so that two updates may get lost; never so often that it costs anything.
        let allowed = wal_sender_timeout.map_or(STATUS_INTERVAL_MAX, |timeout| timeout / 3);
        self.status_interval = allowed.clamp(IDLE_TICK, STATUS_INTERVAL_MAX);
    }
}

/// What lies between was published by a peer. A long gap between two looks is worth a check.
fn tell_takeover(slot: &str, from: Lsn, peers: PeerProgress) {
    let PeerProgress { confirmed: to, gap } = peers;
    let Some(gap) = gap else {
        tracing::info!(slot, %from, %to, "another relay has confirmed events: going on after them");
        return;
    };
    tracing::warn!(
        slot, %from, %to, gap_s = gap.as_secs(),
        "another relay held the slot when it was last seen, and is gone: going on after what the \
         slot has confirmed; if anybody advanced or re-created the slot meanwhile, compare the \
         outbox rows committed between from and to with the broker"
    );
}

impl Relay {
    /// Gets a session when there is none, and lets go of a Postgres that shuts down.
    pub(super) fn mind_link(&mut self, now: Instant) -> Result<(), Fault> {
        if self.stream.is_some() {
            if self.control.source_stopping.load(Ordering::Relaxed) {
                let since = *self.stop_seen_at.get_or_insert(now);
                if now.duration_since(since) > SHUTDOWN_GRACE {
                    tracing::warn!(
                        in_flight = self.core.window.events(),
                        "postgres is shutting down and would wait for unconfirmed events: letting go of it"
                    );
                    self.disconnect();
                }
            }
            return Ok(());
        }
        if !self.link_asked && self.outlet.sink.is_some() {
            self.link_asked = true;
            let confirmed = self.core.progress.reported().max(self.sessions.slot_floor);
            self.link.ask(self.text_only, std::mem::take(&mut self.let_go), confirmed);
        }
        match self.link.news() {
            Some(LinkNews::Opened(opened)) => self.adopt(*opened, now),
            Some(LinkNews::Phase(phase)) => {
                self.phase = phase;
                Ok(())
            }
            Some(LinkNews::Fatal(fault)) => Err(fault),
            None => Ok(()),
        }
    }

    /// Takes a session over, after making sure that it is the same slot of the same system.
    fn adopt(&mut self, opened: Opened, now: Instant) -> Result<(), Fault> {
        let Opened { session, slot_confirmed, peers, mover, wal_sender_timeout, catalog } = opened;
        self.link_asked = false;
        self.stop_seen_at = None;
        self.control.source_stopping.store(false, Ordering::Relaxed);
        let sessions = &mut self.sessions;
        // A Postgres that crashed may have set the slot back behind what a peer confirmed.
        let confirmed = peers.map_or(slot_confirmed, |peers| peers.confirmed.max(slot_confirmed));
        match &sessions.system_id {
            None if session.xlogpos < confirmed => {
                return Err(faults::went_back(&self.source, confirmed, session.xlogpos));
            }
            None => {
                sessions.slot_floor = confirmed;
                self.core.starts_at(confirmed);
            }
            Some(known) if *known != session.system_id => {
                return Err(faults::system_changed(&self.source, known, &session.system_id));
            }
            Some(_) if sessions.timeline != session.timeline => {
                tracing::warn!(
                    from = sessions.timeline,
                    to = session.timeline,
                    "postgres is on another timeline: nothing is known there, events may repeat"
                );
                sessions.slot_floor = slot_confirmed;
                self.core.forget();
                self.core.starts_at(slot_confirmed);
            }
            Some(_) => {
                let ours = self.core.progress.reported().max(sessions.slot_floor);
                let known = peers.map_or(ours, |peers| peers.confirmed.max(ours));
                if slot_confirmed > known {
                    return Err(faults::slot_moved(&self.source, known, slot_confirmed, &mover));
                }
                let seen = self.core.progress.seen().max(known);
                if session.xlogpos < seen {
                    return Err(faults::went_back(&self.source, seen, session.xlogpos));
                }
                if let Some(peers) = peers.filter(|_| known > ours) {
                    tell_takeover(&self.source.slot, ours, peers);
                    self.core.peers_confirmed(known);
                }
                sessions.slot_floor = known;
                // A rewind may have gone back behind it.
                self.core.starts_at(known);
            }
        }
        self.core.crash.takes_over(&session.system_id, session.timeline, &self.source.slot);
        sessions.remember(&session, wal_sender_timeout);
        self.core.connected(!self.text_only, catalog);
        self.stall.connected(Walsender { host: session.host.clone(), pid: session.backend_pid });
        match Stream::new(session.transport, &session.leftover, now) {
            Ok(stream) => {
                tracing::info!(
                    slot = self.source.slot, host = session.host.name, timeline = session.timeline,
                    confirmed = %slot_confirmed, "streaming"
                );
                self.stream = Some(stream);
                self.phase = Phase::Streaming;
                self.recorder.note(self.outlet.weather.trouble());
                // A Postgres that crashed remembers an older position than we do.
                self.report(false);
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
        Ok(())
    }

    /// The stream is over; is that a reason to stop?
    pub(super) fn ended(&mut self, error: StreamError) -> Result<bool, Fault> {
        if let Some(fault) = faults::of_stream(&error, &self.source) {
            return Err(fault);
        }
        self.lost(&error);
        Ok(false)
    }

    pub(super) fn lost(&mut self, error: &StreamError) {
        tracing::warn!(error = %error, in_flight = self.core.window.events(), "the stream ended: reconnecting");
        self.disconnect();
    }

    pub(super) fn disconnect(&mut self) {
        if self.stream.take().is_some() {
            self.metrics.source_reconnects.inc();
        }
        self.core.interrupt();
        self.sql_tasks.forget_catalog();
        self.probed_at = None;
        self.stall.disconnected();
        if self.phase == Phase::Streaming {
            self.phase = Phase::Connecting;
        }
    }
}

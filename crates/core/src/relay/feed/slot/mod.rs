//! Events from a replication slot: opens one session after another, checks that each continues the
//! same slot, reads its stream, and reports confirmed positions to it.

mod adopt;
mod intake;
mod lease;
pub mod replication;
mod session;
mod stall;
mod status_updates;
mod trace;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::lease::SessionLease;
use self::replication::{PacketOutcome, Replication};
use self::session::KnownSlot;
pub use self::session::not_the_last;
use self::stall::{StallDetector, StreamState};
use self::status_updates::StatusUpdates;
use self::trace::TraceCheck;
use super::{Downstream, Feed};
use crate::base::error::{Exit, Fault};
use crate::base::event::Sequence;
use crate::base::lsn::Lsn;
use crate::delivery::flight::Flight;
use crate::delivery::flights::NotInFlight;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::health::{IntakeHold, Pass, Phase};
use crate::metrics::Stage;
use crate::mutants::{Mutant, on};
use crate::relay::admit::Admission;
use crate::relay::control::{OpenedSession, SessionNews, SessionRequest, StopFlags};
use crate::relay::parts::Parts;
use crate::relay::ports::{CatalogLink, Clock, Counter, Database, Meters, SessionLink};
use crate::relay::stops::StandingStops;
use crate::relay::{failure_policy::FailurePolicy, faults};
use crate::sink::Sink;
use crate::source::progress::Signature;
use crate::source::settings::SourceSettings;
use crate::source::sightings::Sightings;
use crate::source::stream::{Stream, StreamError};

/// A Postgres that shuts down waits for its walsenders: the stream is closed after this.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

pub struct SlotFeed {
    pub(in crate::relay) replication: Replication,
    connection: Connection,
    slot: Option<KnownSlot>,
    text_only: bool,
    hold: Option<IntakeHold>,
    status_updates: StatusUpdates,
    stopping_since: Option<Instant>,
    stall: StallDetector,
    lease: SessionLease,
    trace: TraceCheck,
    /// Postgres has ended the stream for this reason, and nothing that came before may be published.
    refused: Option<Fault>,
    /// Why what is in flight must be withdrawn.
    withdrawal: Option<&'static str>,
    /// The relay stops: no further session is requested.
    is_closing: bool,
    database: Box<dyn Database>,
    sightings: Arc<Sightings>,
    source: SourceSettings,
    stops: Arc<StandingStops>,
    /// None once the relay stops without a session.
    sessions: Option<SessionLink>,
    /// The catalog is being read, because the next packet cannot be judged without it.
    catalog: Option<CatalogLink>,
    flags: Arc<StopFlags>,
    meters: Arc<dyn Meters>,
    clock: Arc<dyn Clock>,
}

enum Connection {
    /// The relay has ended the last session itself, and requested no other.
    Closed,
    /// The last session broke, and no other was requested.
    Lost,
    /// The control runtime opens a session, and this is what it waits for.
    Requested(Phase),
    /// A session that may be behind that of a peer: it waits until what is in flight was withdrawn.
    Found(Box<OpenedSession>),
    Open(Stream),
}

impl SlotFeed {
    /// Requests the first session at once: it can open while the sink connects to its broker.
    pub fn new(
        database: Box<dyn Database>,
        sightings: Arc<Sightings>,
        signature: Signature,
        parts: &Parts,
    ) -> Result<SlotFeed, Fault> {
        let Parts { source, delivery, stops, flags, meters, clock, .. } = parts;
        let now = clock.instant();
        let mut feed = SlotFeed {
            replication: Replication::new(source, delivery, signature)?,
            connection: Connection::Closed,
            slot: None,
            text_only: !source.binary,
            hold: None,
            status_updates: StatusUpdates::new(source.stall_timeout, now),
            stopping_since: None,
            stall: StallDetector::new(database.walsender(), source.stall_timeout),
            lease: SessionLease::new(database.walsender(), now),
            trace: TraceCheck::new(database.walsender(), now),
            refused: None,
            withdrawal: None,
            is_closing: false,
            sessions: Some(database.sessions()),
            database,
            sightings,
            source: source.clone(),
            stops: Arc::clone(stops),
            catalog: None,
            flags: Arc::clone(flags),
            meters: Arc::clone(meters),
            clock: Arc::clone(clock),
        };
        feed.request_session(false);
        Ok(feed)
    }

    fn request_session(&mut self, at_once: bool) {
        let (text_only, confirmed) = (self.text_only, self.replication.progress.reported());
        if let Some(sessions) = &self.sessions {
            sessions.request(SessionRequest { text_only, at_once, confirmed });
        }
        self.connection = Connection::Requested(Phase::Connecting);
    }

    fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Open(_))
    }

    /// Whether the session is over, which the stream shows only behind what was not read yet. A relay
    /// that was frozen, or that does not read, would publish beside a peer until then.
    fn is_walsender_gone(&mut self, now: Instant) -> bool {
        let Connection::Open(stream) = &mut self.connection else { return false };
        let is_gone = self.lease.is_walsender_gone()
            || self.trace.is_walsender_gone()
            || (stream.is_closed() && !on(Mutant::ClosedUnseen));
        if !is_gone {
            return false;
        }
        let error = stream.find_error(now);
        if let Some(fault) = error.and_then(|error| self.fault_of(&error)) {
            if self.trace.has_no_position() {
                // None of it may be published, and the next session would end before that changes.
                self.refused = Some(fault);
                return false;
            }
            // Every further session would end there, too, and so would that of any other relay: what
            // comes before is published, as far as it was received.
            self.trace.give_up();
            return self.lease.is_walsender_gone();
        }
        true
    }

    /// Whether a peer may publish while this relay waits for its last confirms: it has no session, and no
    /// attempt at another one would show that the peer has the slot.
    fn may_stop_beside_a_peer(&self) -> bool {
        let is_without_session = self.is_closing && !self.is_connected();
        is_without_session && self.sightings.has_peer() && !on(Mutant::StopsBesidePeer)
    }

    fn lost(&mut self, error: &StreamError) {
        tracing::warn!(code = "stream.ended", error = %error, in_flight = self.in_flight(), "the stream ended: reconnecting");
        self.disconnect(Connection::Lost);
    }

    fn disconnect(&mut self, left: Connection) {
        if self.is_connected() {
            if matches!(left, Connection::Lost) {
                self.meters.count(Counter::Reconnect, 1);
            }
            self.connection = left;
            self.stops.note_session_end();
        }
        self.replication.transactions.interrupt();
        self.catalog = None;
        self.stall.disconnected();
        self.lease.session_ended(self.clock.instant());
        if self.trace.session_ended() && !on(Mutant::TraceNotRepeated) {
            // The same trace is sent again: each further one would be farther from where peers know
            // the slot.
            self.replication.untraced = Some(Lsn::ZERO);
        }
    }

    fn send_status(&mut self, down: &mut Downstream, reply_requested: bool) {
        let lsn = self.replication.reportable();
        let Connection::Open(stream) = &mut self.connection else { return };
        let reporting = self.clock.now();
        match stream.report(lsn, reporting, reply_requested) {
            Ok(()) => {
                self.replication.progress.on_reported(lsn);
                down.admitter.state_file.marks.reported(lsn);
                down.policy.forget_suspects(lsn);
                let sent = self.clock.instant();
                self.status_updates.sent(sent);
                down.meter.stage(Stage::Feedback, sent - reporting.instant);
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
    }
}

impl Feed for SlotFeed {
    const UNREADABLE_TICK: Duration = Duration::from_millis(10);
    const LAST_CONFIRM_WITHIN: Duration = Duration::from_secs(3);
    const TIMES_STAGES: bool = true;
    const RECEIVES_SETTLED: bool = true;

    fn origin(&self) -> String {
        faults::slot_place(&self.source)
    }

    fn ensure_session(&mut self, down: &mut Downstream, now: Instant) -> Result<(), Fault> {
        if self.is_connected() {
            let stopping = self.flags.source_stopping.load(Ordering::Relaxed);
            if stopping && now - *self.stopping_since.get_or_insert(now) > SHUTDOWN_GRACE {
                tracing::warn!(
                    code = "stream.postgres-stops",
                    in_flight = self.in_flight(),
                    "postgres is shutting down and would wait for unconfirmed events: closing the stream"
                );
                self.disconnect(Connection::Lost);
            }
            return Ok(());
        }
        match std::mem::replace(&mut self.connection, Connection::Lost) {
            Connection::Found(opened) => return self.adopt(*opened, down, now),
            Connection::Closed if down.driver.sink.is_some() => self.request_session(true),
            Connection::Lost if down.driver.sink.is_some() => self.request_session(false),
            connection => self.connection = connection,
        }
        match self.sessions.as_ref().and_then(|sessions| sessions.answer()) {
            Some(SessionNews::Opened(mut opened)) => {
                opened.seen.peer_may_have_held |= self.is_left_by_another(&opened);
                if !self.follows_a_peer(&opened, down) {
                    return self.adopt(*opened, down, now);
                }
                self.withdrawal = Some("another relay has had the slot");
                self.connection = Connection::Found(opened);
            }
            Some(SessionNews::Failed(fault)) => return Err(fault),
            Some(SessionNews::Waiting(phase)) => {
                if let Connection::Requested(awaited) = &mut self.connection {
                    *awaited = phase;
                }
                if phase == Phase::Standby {
                    down.admitter.state_file.peer_seen(self.clock.unix_us());
                    self.slot.iter_mut().for_each(|slot| slot.peer_held = true);
                }
                let keeps = self.replication.flights.is_empty() || on(Mutant::StandbyKeepsSink);
                if phase == Phase::Standby && !keeps {
                    self.withdrawal = Some("another relay has the slot");
                }
            }
            None => {}
        }
        Ok(())
    }

    fn withdrawal(&mut self, now: Instant, missed: Duration) -> Option<String> {
        if !missed.is_zero() && !on(Mutant::FreezeUnnoticed) {
            self.lease.missed(now, missed);
            self.status_updates.missed(missed);
        }
        if let Connection::Open(stream) = &mut self.connection {
            let is_read = self.hold.is_none() && self.replication.flights.has_room();
            let (lived_at, delivered_at) = (stream.lived_at(), stream.delivered_at());
            self.lease.observe(now, lived_at, delivered_at, is_read);
        }
        let has_expired = self.lease.has_expired(now);
        let unheard_ms = self.lease.unheard_for(now).as_millis() as u64;
        let undelivered_ms = self.lease.undelivered_for(now).as_millis() as u64;
        let is_gone = self.is_walsender_gone(now);
        if self.is_connected() && (self.lease.is_over(now) || is_gone) {
            tracing::warn!(
                code = "stream.unheard",
                unheard_ms,
                undelivered_ms,
                missed_ms = missed.as_millis() as u64,
                ended = is_gone,
                "nothing shows that the session is alive, or its walsender has ended (ended=true), so another relay may get the slot: opening another session"
            );
            // What the socket still holds may be old.
            self.disconnect(Connection::Lost);
        }
        let in_flight = !self.replication.flights.is_empty();
        if in_flight && self.may_stop_beside_a_peer() {
            self.withdrawal = Some("the relay stops without a session, and another relay is there");
        }
        let known = self.withdrawal.take();
        if !has_expired {
            return known.map(str::to_owned);
        }
        in_flight.then(|| match known {
            Some(reason) => reason.to_owned(),
            None => format!(
                "there has been no sign of the session for {unheard_ms} ms, and none that postgres hears this relay for {undelivered_ms} ms"
            ),
        })
    }

    fn send_until(&self) -> Instant {
        self.lease.send_until()
    }

    fn intake(
        &mut self,
        down: &mut Downstream,
        now: Instant,
        closing: bool,
    ) -> Result<bool, Fault> {
        if let Some(fault) = self.refused.take() {
            return self.stopped(fault);
        }
        self.hold = self.held_intake(down);
        let Downstream { admitter, policy, driver, meter, read_at, clock, .. } = down;
        let sink = driver.sink.as_mut().filter(|_| self.hold.is_none());
        let (Connection::Open(stream), Some(sink)) = (&mut self.connection, sink) else {
            self.hold(now);
            return Ok(false);
        };
        let reading = clock.instant();
        stream.set_confirm_time(self.replication.flights.confirm_time());
        let filled = stream.fill(now);
        let read = *read_at.insert(clock.instant());
        meter.stage(Stage::Read, read - reading);
        let mut admission =
            Admission { admitter, policy, sink: &mut **sink, meter: &mut **meter, clock: &**clock };
        loop {
            if closing && !self.replication.is_incomplete() {
                return Ok(false);
            }
            let (outcome, length) = match stream.peek() {
                Ok(Some((packet, length))) => match self.replication.take(packet, &mut admission) {
                    Ok(outcome) => (outcome, length),
                    Err(fault) => return self.stopped(fault),
                },
                Ok(None) => break,
                Err(error) => return self.ended(&error),
            };
            match outcome {
                PacketOutcome::Done => stream.consume(length),
                PacketOutcome::ReplyRequested => {
                    stream.consume(length);
                    self.status_updates.requested = true;
                }
                PacketOutcome::TraceDue(position) => {
                    if let Err(error) = stream.report(position, clock.now(), false) {
                        return self.ended(&StreamError::Io(error));
                    }
                    self.replication.progress.on_traced(position);
                    admission.admitter.state_file.marks.reported(position);
                    self.trace.sent(position, now);
                    self.hold = Some(IntakeHold::TraceAwaited);
                    self.hold(now);
                    return Ok(false);
                }
                PacketOutcome::NoTraceFits => {
                    let marks = &admission.admitter.state_file.marks;
                    let has_peer = session::remembers_peer(marks, &self.sightings, clock.now());
                    if has_peer && self.trace.is_unnoticed(now) {
                        self.hold = Some(IntakeHold::TraceAwaited);
                        self.hold(now);
                        return Ok(false);
                    }
                    self.replication.untraced = None;
                }
                PacketOutcome::Stopped(why) => {
                    self.intake_stopped(why, down, now);
                    return Ok(false);
                }
            }
        }
        filled.or_else(|error| self.ended(&error))
    }

    fn hold(&mut self, now: Instant) {
        if let Connection::Open(stream) = &mut self.connection {
            // The socket is not read, so silence does not mean that the connection is dead.
            stream.reset_silence(now);
        }
        self.stall.excuse();
    }

    fn wait(&mut self, tick: Duration, sink: Option<&dyn Sink>, now: Instant) -> bool {
        let sink = sink.filter(|_| self.hold.is_none() && self.replication.flights.has_room());
        let (Connection::Open(stream), Some(sink)) = (&mut self.connection, sink) else {
            return false;
        };
        let waited = stream.wait(tick, sink.readiness(), now);
        waited.unwrap_or_else(|error| self.lost(&StreamError::Io(error)));
        true
    }

    fn awaits_confirms(&self) -> bool {
        !self.replication.flights.is_empty() || self.status_updates.requested
    }

    fn settle(&mut self, event: Sequence) -> Result<Flight, NotInFlight> {
        self.replication.settle(event)
    }

    fn update<T>(
        &mut self,
        event: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight> {
        self.replication.flights.update(event, decide)
    }

    fn given_up(&self) -> Vec<Sequence> {
        self.replication.flights.given_up()
    }

    fn confirmed_prefix(&mut self) -> Option<ConfirmedPrefix> {
        let Replication { prefixes, flights, .. } = &mut self.replication;
        prefixes.settled(flights.settled_below())
    }

    fn forget_prefix(&mut self) {
        self.replication.prefixes.forget_prefix();
    }

    fn next(&self) -> (Sequence, bool) {
        (self.replication.flights.next(), self.replication.flights.has_room())
    }

    fn rewind(&mut self, policy: &mut FailurePolicy) {
        self.disconnect(Connection::Closed);
        self.replication.rewind(policy);
    }

    /// Sends a status update when there is a new position to report, or one is due.
    fn report(&mut self, down: &mut Downstream, now: Instant) {
        self.replication.flights.set_reachable(down.driver.is_reachable());
        self.replication.flights.adapt(now);
        self.note_peer(down);
        let Connection::Open(stream) = &self.connection else { return };
        let heard = stream.last_received();
        let reportable = self.replication.reportable();
        let (seen, server) = (self.replication.progress.seen(), down.recorder.server_lsn());
        if let Some(reason) = self.stall.judge(StreamState { now, heard, seen, server }) {
            let silent_s = now.saturating_duration_since(heard).as_secs();
            tracing::warn!(code = "stream.dead", silent_s, %reason, "the connection is taken for dead: reconnecting");
            self.disconnect(Connection::Lost);
            return;
        }
        let new = reportable > self.replication.progress.reported();
        if let Some(reply_requested) = self.status_updates.due(now, heard, new) {
            self.send_status(down, reply_requested);
        }
    }

    fn in_flight(&self) -> usize {
        self.replication.flights.events()
    }

    fn overtaken(&self, now: Instant) -> (Vec<Sequence>, Duration) {
        let flights = &self.replication.flights;
        (flights.overtaken().collect(), flights.overtaken_for(now))
    }

    fn status(&self, now: Instant) -> Pass {
        Pass {
            phase: match self.connection {
                Connection::Open(_) => Phase::Streaming,
                Connection::Requested(phase) => phase,
                Connection::Closed | Connection::Lost | Connection::Found(_) => Phase::Connecting,
            },
            hold: self.hold,
            decoding_for: self
                .stall
                .decoding_since()
                .map(|since| now.saturating_duration_since(since)),
            ..self.replication.status()
        }
    }

    fn note_peer(&self, down: &mut Downstream) {
        if self.sightings.has_peer() {
            down.admitter.state_file.peer_seen(self.clock.unix_us());
        }
    }

    fn close(&mut self) {
        self.is_closing = true;
        if !self.is_connected() {
            // A session that opened now would not be read, and would keep the slot from others.
            self.connection = Connection::Closed;
            self.sessions = None;
        }
    }

    fn is_mid_transaction(&self) -> bool {
        self.is_connected() && !self.replication.between_transactions()
    }

    fn is_incomplete(&self) -> bool {
        self.is_connected() && self.replication.is_incomplete()
    }

    fn finish(&mut self, down: &mut Downstream, fault: Option<&Fault>) -> usize {
        if on(Mutant::StopUnreported) {
            return self.replication.flights.events();
        }
        self.note_peer(down);
        self.send_status(down, false);
        let ending = std::mem::replace(&mut self.connection, Connection::Closed);
        let reported = if let Connection::Open(stream) = ending {
            session::end(stream, &*self.clock)
        } else {
            false
        };
        // After a fault of the slot itself this relay's positions may not apply to it.
        let trusted =
            fault.is_none_or(|fault| fault.exit != Exit::Slot) || on(Mutant::ReportsAfterFault);
        if let Some(slot) = self.slot.as_ref().filter(|_| !reported && trusted) {
            let lsn = self.replication.final_position(slot.floor);
            let own = self.replication.own_positions(slot.found);
            let peer_seen = self.has_seen_peer(down);
            session::confirm_over_sql(&*self.database, slot, lsn, own, peer_seen);
            down.admitter.state_file.marks.reported(lsn);
        }
        self.replication.flights.events()
    }
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod bench;

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;

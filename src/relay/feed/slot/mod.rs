//! Events from a replication slot: one session after another is taken over, checked to be of the
//! same slot, read, reported to, and given up.

mod replication;
mod session;
mod stall;
mod status_updates;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::replication::{PacketOutcome, Replication};
use self::session::{Continuation, KnownSlot};
use self::stall::{StallDetector, StreamState};
use self::status_updates::{Due, StatusUpdates};
use super::{Downstream, Feed, FeedStatus};
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::DeadLetterCause;
use crate::delivery::settings::DeliverySettings;
use crate::delivery::window::NotInFlight;
use crate::health::Phase;
use crate::metrics::{Metrics, Stage};
use crate::relay::admit::Admission;
use crate::relay::control::{
    CatalogLink, ConfirmLink, ControlLinks, OpenedSession, SessionLink, SessionNews,
    SessionRequest, StopFlags, Walsender,
};
use crate::relay::failure_policy::FailurePolicy;
use crate::relay::faults;
use crate::source::settings::SourceSettings;
use crate::source::stream::{Stream, StreamError};

/// How long a Postgres that shuts down may wait for this relay before the stream is closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Reads a slot.
pub struct SlotFeed {
    replication: Replication,
    connection: Connection,
    /// What the control runtime waits for while there is no session.
    awaited: Phase,
    slot: Option<KnownSlot>,
    text_only: bool,
    held: bool,
    status_updates: StatusUpdates,
    /// Since when Postgres has been shutting down.
    stopping_since: Option<Instant>,
    stall: StallDetector,
    sessions: SessionLink,
    catalog: CatalogLink,
    confirm: ConfirmLink,
    source: SourceSettings,
    flags: Arc<StopFlags>,
    metrics: Arc<Metrics>,
}

enum Connection {
    /// No session was asked for. The relay ended the last one itself, or lost it.
    Closed,
    Lost,
    Requested,
    Open(Stream),
}

impl SlotFeed {
    /// Asks for the first session at once: it can open while the sink finds its broker.
    pub fn new(
        source: SourceSettings,
        delivery: &DeliverySettings,
        links: ControlLinks,
        flags: Arc<StopFlags>,
        metrics: Arc<Metrics>,
    ) -> Result<SlotFeed, Fault> {
        let ControlLinks { sessions, catalog, confirm, walsender } = links;
        let text_only = !source.binary;
        sessions.request(SessionRequest { text_only, at_once: false, confirmed: Lsn::ZERO });
        Ok(SlotFeed {
            replication: Replication::new(&source, delivery)?,
            connection: Connection::Requested,
            awaited: Phase::Connecting,
            slot: None,
            text_only,
            held: false,
            status_updates: StatusUpdates::new(source.stall_timeout),
            stopping_since: None,
            stall: StallDetector::new(walsender, source.stall_timeout),
            sessions,
            catalog,
            confirm,
            source,
            flags,
            metrics,
        })
    }

    /// What is known to be confirmed.
    fn known_confirmed(&self) -> Lsn {
        let floor = self.slot.as_ref().map_or(Lsn::ZERO, |slot| slot.floor);
        self.replication.progress.reported().max(floor)
    }

    /// Takes a session over, after making sure that it is of the same slot of the same system.
    fn adopt(
        &mut self,
        opened: OpenedSession,
        down: &mut Downstream,
        now: Instant,
    ) -> Result<(), Fault> {
        self.connection = Connection::Lost;
        self.stopping_since = None;
        self.flags.source_stopping.store(false, Ordering::Relaxed);
        let source = &self.source;
        let known = self.slot.as_ref().map(|slot| (slot, self.known_confirmed()));
        let (progress, policy) = (&self.replication.progress, &mut down.policy);
        let (floor, continuation) = session::judge(source, known, progress.seen(), &opened)?;
        match continuation {
            Continuation::OtherTimeline => self.replication.forget(policy),
            Continuation::AfterPeers => self.replication.peers_confirmed(floor, policy),
            Continuation::First | Continuation::Same => {}
        }
        // After a rewind, too: it may have gone back behind it.
        self.replication.starts_at(floor);
        let OpenedSession { session, slot_confirmed, wal_sender_timeout, catalog, .. } = opened;
        let (system_id, timeline) = (session.system_id.clone(), session.timeline);
        down.admitter.crash.takes_over(&system_id, timeline, &source.slot);
        self.slot = Some(KnownSlot { system_id, timeline, own_pid: session.backend_pid, floor });
        self.status_updates.connected(wal_sender_timeout);
        self.replication.connected(!self.text_only, catalog);
        self.stall.connected(Walsender { host: session.host.clone(), pid: session.backend_pid });
        match Stream::new(session.transport, now) {
            Ok(stream) => {
                tracing::info!(
                    slot = source.slot, host = session.host.name, timeline,
                    confirmed = %slot_confirmed, "streaming"
                );
                self.connection = Connection::Open(stream);
                down.recorder.note(down.driver.outage());
                // A Postgres that crashed remembers an older position than this relay.
                self.send_status(down, false);
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
        Ok(())
    }

    /// The stream has ended; a fault where a new session would only meet the same.
    fn ended(&mut self, error: &StreamError) -> Result<bool, Fault> {
        if let Some(fault) = faults::of_stream(error, &self.source) {
            return Err(fault);
        }
        self.lost(error);
        Ok(false)
    }

    fn lost(&mut self, error: &StreamError) {
        let in_flight = self.replication.window.events();
        tracing::warn!(error = %error, in_flight, "the stream ended: reconnecting");
        self.disconnect(Connection::Lost);
    }

    fn disconnect(&mut self, left: Connection) {
        if matches!(self.connection, Connection::Open(_)) {
            self.connection = left;
            self.awaited = Phase::Connecting;
            self.metrics.source_reconnects.inc();
        }
        self.replication.interrupt();
        self.catalog.cancel();
        self.stall.disconnected();
    }

    fn send_status(&mut self, down: &mut Downstream, reply_requested: bool) {
        let lsn = self.replication.reportable();
        let Connection::Open(stream) = &mut self.connection else { return };
        let reporting = Instant::now();
        match stream.report(lsn, unix_now_us(), reply_requested) {
            Ok(()) => {
                self.replication.progress.on_reported(lsn);
                self.status_updates.sent(Instant::now());
                down.meter.stage(Stage::Feedback, reporting.elapsed());
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
    }
}

impl Feed for SlotFeed {
    const CONFIRM_TICK: Duration = Duration::from_millis(10);
    const LAST_CONFIRM_WITHIN: Duration = Duration::from_secs(3);
    const TIMES_STAGES: bool = true;

    fn origin(&self) -> String {
        faults::slot_place(&self.source)
    }

    fn ensure_session(&mut self, down: &mut Downstream, now: Instant) -> Result<(), Fault> {
        if let Connection::Open(_) = self.connection {
            let stopping = self.flags.source_stopping.load(Ordering::Relaxed);
            if stopping && now - *self.stopping_since.get_or_insert(now) > SHUTDOWN_GRACE {
                let in_flight = self.replication.window.events();
                tracing::warn!(
                    in_flight,
                    "postgres is shutting down and would wait for unconfirmed events: closing the stream"
                );
                self.disconnect(Connection::Lost);
            }
            return Ok(());
        }
        let lost = matches!(self.connection, Connection::Closed | Connection::Lost);
        if lost && down.driver.sink.is_some() {
            let at_once = matches!(self.connection, Connection::Closed);
            let (text_only, confirmed) = (self.text_only, self.known_confirmed());
            let request = SessionRequest { text_only, at_once, confirmed };
            self.sessions.request(request);
            self.connection = Connection::Requested;
        }
        match self.sessions.answer() {
            Some(SessionNews::Opened(opened)) => self.adopt(*opened, down, now),
            Some(SessionNews::Waiting(phase)) => {
                self.awaited = phase;
                Ok(())
            }
            Some(SessionNews::Failed(fault)) => Err(fault),
            None => Ok(()),
        }
    }

    fn intake(
        &mut self,
        down: &mut Downstream,
        now: Instant,
        closing: bool,
    ) -> Result<bool, Fault> {
        if let Some(catalog) = self.catalog.answer() {
            self.replication.refresh(catalog);
        }
        self.held = !down.policy.gate.admits() || self.catalog.is_awaited();
        let Downstream { admitter, policy, driver, meter, read_at, .. } = down;
        let sink =
            driver.sink.as_mut().filter(|_| self.replication.window.has_room() && !self.held);
        let (Connection::Open(stream), Some(sink)) = (&mut self.connection, sink) else {
            self.hold(now);
            return Ok(false);
        };
        let reading = Instant::now();
        let filled = stream.fill(now);
        let read = *read_at.insert(Instant::now());
        meter.stage(Stage::Read, read - reading);
        let mut admission = Admission { admitter, policy, sink: &mut **sink, meter };
        loop {
            if closing && self.replication.between_transactions() {
                return Ok(false);
            }
            let (outcome, length) = match stream.peek() {
                Ok(Some((packet, length))) => {
                    (self.replication.take(packet, &mut admission)?, length)
                }
                Ok(None) => break,
                Err(error) => return self.ended(&error),
            };
            match outcome {
                PacketOutcome::Done => stream.consume(length),
                PacketOutcome::ReplyRequested => {
                    stream.consume(length);
                    self.status_updates.requested = true;
                }
                PacketOutcome::Full => {
                    self.held = true;
                    self.hold(now);
                    return Ok(false);
                }
                PacketOutcome::TextModeNeeded => {
                    self.text_only = true;
                    self.disconnect(Connection::Lost);
                    return Ok(false);
                }
                PacketOutcome::CatalogNeeded => {
                    self.catalog.request();
                    self.held = true;
                    stream.excuse_silence(now);
                    return Ok(false);
                }
                PacketOutcome::SinkBroken => {
                    driver.break_sink("it refuses every event", self.replication.window.events());
                    return Ok(false);
                }
            }
        }
        filled.or_else(|error| self.ended(&error))
    }

    fn hold(&mut self, now: Instant) {
        if let Connection::Open(stream) = &mut self.connection {
            // The socket is not read, so its silence means nothing.
            stream.excuse_silence(now);
        }
        self.stall.excuse();
    }

    fn wait(&mut self, tick: Duration, has_sink: bool) -> bool {
        let Connection::Open(stream) = &mut self.connection else { return false };
        if !has_sink || self.held || !self.replication.window.has_room() {
            return false;
        }
        if let Err(error) = stream.wait(tick) {
            self.lost(&StreamError::Io(error));
        }
        true
    }

    fn awaits_confirms(&self) -> bool {
        !self.replication.window.is_empty() || self.status_updates.requested
    }

    fn confirmed(
        &mut self,
        event: Sequence,
        _cause: Option<&DeadLetterCause>,
    ) -> Result<i64, NotInFlight> {
        self.replication.window.settle(event)
    }

    fn position_of(&self, event: Sequence) -> Position {
        self.replication.position_of(event)
    }

    fn next(&self) -> (Sequence, bool) {
        (self.replication.window.next(), self.replication.window.has_room())
    }

    fn rewind(&mut self, policy: &mut FailurePolicy) {
        self.disconnect(Connection::Closed);
        self.replication.rewind(policy);
    }

    /// Reports what Postgres may forget, when it is new or a status update is due.
    fn report(&mut self, down: &mut Downstream, now: Instant) {
        let Connection::Open(stream) = &self.connection else { return };
        let heard = stream.last_heard();
        let reportable = self.replication.reportable();
        let (seen, server) = (self.replication.progress.seen(), down.recorder.server_lsn());
        if let Some(reason) = self.stall.judge(StreamState { now, heard, seen, server }) {
            let silent_s = now.saturating_duration_since(heard).as_secs();
            tracing::warn!(silent_s, reason, "the connection is taken for dead: reconnecting");
            self.disconnect(Connection::Lost);
            return;
        }
        let new = reportable > self.replication.progress.reported();
        if let Some(Due { reply_requested }) = self.status_updates.due(now, heard, new) {
            self.send_status(down, reply_requested);
        }
    }

    fn status(&self) -> FeedStatus {
        let Replication { window, progress, .. } = &self.replication;
        let connected = matches!(self.connection, Connection::Open(_));
        FeedStatus {
            phase: if connected { Phase::Streaming } else { self.awaited },
            connected,
            held: self.held,
            in_flight_events: window.events(),
            in_flight_bytes: window.bytes(),
            received_lsn: progress.seen(),
            sent_lsn: self.replication.sent_lsn(),
            confirmed_lsn: progress.reported(),
            decoding_for: self.stall.decoding_since().map(|since| since.elapsed()),
        }
    }

    fn close(&mut self) {
        if !matches!(self.connection, Connection::Open(_)) {
            // A session that opens now would not be read, and would keep the slot from others.
            self.sessions.close();
        }
    }

    fn is_mid_transaction(&self) -> bool {
        let connected = matches!(self.connection, Connection::Open(_));
        connected && !self.replication.between_transactions()
    }

    fn finish(&mut self, down: &mut Downstream, fault: Option<&Fault>) -> usize {
        self.send_status(down, false);
        let ending = std::mem::replace(&mut self.connection, Connection::Requested);
        let reported = match ending {
            Connection::Open(stream) => session::end(stream),
            Connection::Closed | Connection::Lost | Connection::Requested => false,
        };
        // After a fault of the slot itself its positions may mean something else.
        let trusted = fault.is_none_or(|fault| fault.exit != Exit::Slot);
        if let Some(slot) = self.slot.as_ref().filter(|_| !reported && trusted) {
            session::confirm_over_sql(&self.confirm, slot, self.replication.reportable());
        }
        self.replication.window.events()
    }
}

//! The loop that carries events: the file to read first.
//!
//! One thread reads, decodes, admits, publishes, collects confirms and tells Postgres what it may
//! forget. It never blocks on a broker or a database: a session is opened elsewhere ([`link`]) and
//! handed over, the sink is polled, and the only waits are for the socket, bounded by the next
//! status update. So feedback cannot be starved, whatever the sink does.
//!
//! A broken stream changes nothing about what is in flight: it stays in flight, and what Postgres
//! sends again is recognised and passed over ([`crate::delivery::admitted`]).

mod core;
mod drain;
mod faults;
pub mod link;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::core::{Core, Taken};
use self::link::{Link, LinkNews, Opened};
use crate::delivery::settings::DeliverySettings;
use crate::error::Fault;
use crate::health::{Pass, Phase, Recorder};
use crate::lsn::Lsn;
use crate::metrics::Metrics;
use crate::sink::{News, Sink};
use crate::source::settings::SourceSettings;
use crate::source::stream::{Stream, StreamError};

/// Status updates are at least this far apart under load: what a killed relay has confirmed and
/// not yet reported is repeated, so the gap is small; each update wakes the walsender, so it is
/// not zero.
const REPORT_GAP: Duration = Duration::from_millis(20);
/// Longest wait while something is in flight: confirms do not wake the loop.
const CONFIRM_TICK: Duration = Duration::from_millis(10);
/// Longest wait of an idle loop; keepalives below the socket's low water are answered from it.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// How long a Postgres that shuts down may wait for us before we let go of it.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Longest gap between status updates whatever `wal_sender_timeout` allows.
const STATUS_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// What others tell the loop.
#[derive(Debug, Default)]
pub struct Control {
    /// Stop: settle, report, end.
    pub stop: AtomicBool,
    /// Postgres refuses new connections because it shuts down.
    pub source_stopping: AtomicBool,
}

/// Builds a sink; called again when one has broken.
pub type SinkFactory = Box<dyn FnMut() -> Result<Box<dyn Sink>, Fault> + Send>;

/// Everything the loop is made of.
pub struct Parts {
    /// `[source]`.
    pub source: SourceSettings,
    /// `[delivery]`.
    pub delivery: DeliverySettings,
    /// How to make a sink.
    pub sink_factory: SinkFactory,
    /// Where sessions come from.
    pub link: Link,
    /// What others tell the loop.
    pub control: Arc<Control>,
    /// Where the loop counts.
    pub metrics: Arc<Metrics>,
    /// Where the loop says how it stands.
    pub recorder: Recorder,
    /// The origin of `recorder`'s clock.
    pub origin: Instant,
}

/// The relay.
pub struct Relay {
    core: Core,
    sink: Box<dyn Sink>,
    sink_factory: SinkFactory,
    /// When to build the next sink, after one has broken.
    sink_rebuild_at: Option<Instant>,
    sink_reachable: bool,
    stream: Option<Stream>,
    link: Link,
    link_asked: bool,
    phase: Phase,
    text_only: bool,
    sessions: Sessions,
    stop_seen_at: Option<Instant>,
    last_report: Instant,
    reply_wanted: bool,
    probed: bool,
    news: Vec<News>,
    settled_events: u64,
    source: SourceSettings,
    delivery: DeliverySettings,
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    recorder: Recorder,
    origin: Instant,
}

/// What must stay the same from session to session.
#[derive(Debug, Default)]
struct Sessions {
    system_id: Option<String>,
    timeline: u32,
    /// Where the slot stood when we first met it.
    slot_floor: Lsn,
    status_interval: Duration,
}

impl Relay {
    /// A relay with a fresh sink; asks for its first session at once.
    pub fn new(parts: Parts) -> Result<Relay, Fault> {
        let Parts { source, delivery, mut sink_factory, link, control, metrics, recorder, origin } = parts;
        let now = Instant::now();
        Ok(Relay {
            core: Core::new(&source, &delivery, &metrics)?,
            sink: sink_factory()?,
            sink_factory,
            sink_rebuild_at: None,
            sink_reachable: true,
            stream: None,
            link,
            link_asked: false,
            phase: Phase::Connecting,
            text_only: !source.binary,
            sessions: Sessions { status_interval: STATUS_INTERVAL_MAX, ..Sessions::default() },
            stop_seen_at: None,
            last_report: now,
            reply_wanted: false,
            probed: false,
            news: Vec::new(),
            settled_events: 0,
            source,
            delivery,
            control,
            metrics,
            recorder,
            origin,
        })
    }

    /// Carries events until told to stop, or until it must not go on.
    pub fn run(mut self) -> Result<(), Fault> {
        let outcome = self.carry();
        let outcome = self.drain(outcome);
        self.phase = Phase::Stopped;
        self.publish_facts();
        outcome
    }

    fn carry(&mut self) -> Result<(), Fault> {
        while !self.control.stop.load(Ordering::Relaxed) {
            let more = self.pass()?;
            if !more {
                self.rest()?;
            }
        }
        Ok(())
    }

    /// One turn: everything that can be done without waiting. True when there is probably more.
    fn pass(&mut self) -> Result<bool, Fault> {
        let now = Instant::now();
        self.mind_link(now)?;
        self.mind_sink(now)?;
        let more = self.intake(now)?;
        self.collect(Duration::ZERO)?;
        self.feedback(now);
        self.publish_facts();
        Ok(more)
    }

    /// Gets a session when there is none, and lets go of a Postgres that shuts down.
    fn mind_link(&mut self, now: Instant) -> Result<(), Fault> {
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
        if !self.link_asked && self.sink_rebuild_at.is_none() {
            self.link_asked = true;
            self.link.ask(self.text_only);
        }
        match self.link.news() {
            Some(LinkNews::Opened(opened)) => self.adopt(*opened, now),
            Some(LinkNews::Standby) => {
                self.phase = Phase::Standby;
                Ok(())
            }
            Some(LinkNews::Fatal(fault)) => Err(fault),
            None => Ok(()),
        }
    }

    /// Takes a session over, after making sure that it is the same slot of the same system.
    fn adopt(&mut self, opened: Opened, now: Instant) -> Result<(), Fault> {
        let Opened { session, slot_confirmed, wal_sender_timeout, tables_published } = opened;
        self.link_asked = false;
        self.stop_seen_at = None;
        self.control.source_stopping.store(false, Ordering::Relaxed);
        let sessions = &mut self.sessions;
        match &sessions.system_id {
            None => {
                sessions.slot_floor = slot_confirmed;
                self.core.starts_at(slot_confirmed);
            }
            Some(known) if *known != session.system_id => {
                return Err(faults::system_changed(&self.source, known, &session.system_id));
            }
            Some(_) if sessions.timeline != session.timeline => {
                tracing::warn!(
                    from = sessions.timeline, to = session.timeline,
                    "postgres is on another timeline: nothing is known there, events may repeat"
                );
                sessions.slot_floor = slot_confirmed;
                self.core.forget();
                self.core.starts_at(slot_confirmed);
            }
            Some(_) => {
                let ours = self.core.progress.reported().max(sessions.slot_floor);
                if slot_confirmed > ours {
                    return Err(faults::slot_moved(&self.source, ours, slot_confirmed));
                }
            }
        }
        sessions.system_id = Some(session.system_id);
        sessions.timeline = session.timeline;
        // A third, so that two updates may get lost; never so often that it costs anything.
        let allowed = wal_sender_timeout.map_or(STATUS_INTERVAL_MAX, |timeout| timeout / 3);
        sessions.status_interval = allowed.clamp(IDLE_TICK, STATUS_INTERVAL_MAX);
        self.core.connected(!self.text_only, tables_published);
        match Stream::new(session.transport, &session.leftover, now) {
            Ok(stream) => {
                tracing::info!(
                    slot = self.source.slot, host = session.host.name, timeline = session.timeline,
                    confirmed = %slot_confirmed, "streaming"
                );
                self.stream = Some(stream);
                self.phase = Phase::Streaming;
                self.recorder.note("");
                // A Postgres that crashed remembers an older position than we do.
                self.report(false);
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
        Ok(())
    }

    /// Reads and hands over what fits.
    fn intake(&mut self, now: Instant) -> Result<bool, Fault> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        if self.sink_rebuild_at.is_some() || !self.core.window.has_room() {
            // Not read on purpose.
            stream.excuse_silence(now);
            return Ok(false);
        }
        let filled = stream.fill(now);
        let closing = self.phase == Phase::Draining;
        loop {
            if closing && self.core.between_transactions() {
                return Ok(false);
            }
            let (taken, length) = match stream.peek() {
                Ok(Some((packet, length))) => (self.core.take(packet, &mut *self.sink)?, length),
                Ok(None) => break,
                Err(error) => return self.ended(error),
            };
            match taken {
                Taken::Yes => stream.consume(length),
                Taken::ReplyWanted => {
                    stream.consume(length);
                    self.reply_wanted = true;
                }
                Taken::Full => return Ok(false),
                Taken::TextWanted => {
                    self.text_only = true;
                    self.disconnect();
                    return Ok(false);
                }
                Taken::LookAgain => {
                    self.disconnect();
                    return Ok(false);
                }
                Taken::SinkBroken => {
                    self.break_sink("it refuses every event");
                    return Ok(false);
                }
            }
        }
        match filled {
            Ok(more) => Ok(more),
            Err(error) => self.ended(error),
        }
    }

    /// Waits for whatever comes next.
    fn rest(&mut self) -> Result<(), Fault> {
        let busy = !self.core.window.is_empty() || self.reply_wanted;
        let tick = if busy { CONFIRM_TICK } else { IDLE_TICK.min(self.sessions.status_interval) };
        match &mut self.stream {
            Some(stream) if self.core.window.has_room() && self.sink_rebuild_at.is_none() => {
                if let Err(error) = stream.wait(tick) {
                    self.lost(&StreamError::Io(error));
                }
                Ok(())
            }
            _ => self.collect(CONFIRM_TICK),
        }
    }

    /// Takes in what the sink has to tell.
    fn collect(&mut self, patience: Duration) -> Result<(), Fault> {
        let mut news = std::mem::take(&mut self.news);
        self.sink.poll(patience, &mut news);
        let now_unix_us = if news.is_empty() { 0 } else { unix_now_us() };
        let mut outcome = Ok(());
        for item in news.drain(..) {
            match item {
                News::Confirmed(sequence) => {
                    self.settled_events += 1;
                    outcome = outcome.and(self.core.confirmed(sequence, now_unix_us));
                }
                News::Failed(sequence, failure) => {
                    outcome = outcome.and(self.failed(sequence, failure));
                }
                News::Reachable => {
                    tracing::info!("the broker answers again");
                    self.sink_reachable = true;
                }
                News::Unreachable(reason) => {
                    if std::mem::replace(&mut self.sink_reachable, false) {
                        tracing::warn!(error = reason, "the broker does not answer: events wait");
                    }
                }
                News::Broken(reason) => self.break_sink(&reason),
            }
        }
        self.news = news;
        outcome
    }

    /// Tells Postgres what it may forget, when that is news or a sign of life is due.
    fn feedback(&mut self, now: Instant) {
        let Some(stream) = &self.stream else { return };
        let reportable = self.core.reportable();
        let since = now.duration_since(self.last_report);
        let silence = now.saturating_duration_since(stream.last_heard());
        if silence > self.source.stall_timeout {
            let limit_s = self.source.stall_timeout.as_secs();
            tracing::warn!(limit_s, "no sign of life from postgres: the connection is taken for dead");
            self.disconnect();
            return;
        }
        let half_dead = silence > self.source.stall_timeout / 2;
        let probe = half_dead && !self.probed;
        let worth_it = reportable > self.core.progress.reported() || self.reply_wanted;
        if probe || since >= self.sessions.status_interval || (worth_it && since >= REPORT_GAP) {
            self.probed = half_dead;
            self.report(probe);
        }
    }

    fn report(&mut self, reply_requested: bool) {
        let Some(stream) = &mut self.stream else { return };
        let lsn = self.core.reportable();
        match stream.report(lsn, unix_now_us(), reply_requested) {
            Ok(()) => {
                self.core.progress.on_reported(lsn);
                self.last_report = Instant::now();
                self.reply_wanted = false;
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
    }

    /// The stream is over; is that a reason to stop?
    fn ended(&mut self, error: StreamError) -> Result<bool, Fault> {
        if let Some(fault) = faults::of_stream(&error, &self.source) {
            return Err(fault);
        }
        self.lost(&error);
        Ok(false)
    }

    fn lost(&mut self, error: &StreamError) {
        tracing::warn!(error = %error, in_flight = self.core.window.events(), "the stream ended: reconnecting");
        self.disconnect();
    }

    fn disconnect(&mut self) {
        if self.stream.take().is_some() {
            self.metrics.source_reconnects.inc();
        }
        self.core.interrupt();
        self.probed = false;
        if self.phase == Phase::Streaming {
            self.phase = Phase::Connecting;
        }
    }

    fn publish_facts(&mut self) {
        self.core.meter.flush();
        let pass = Pass {
            phase: self.phase,
            sink_reachable: self.sink_reachable,
            settled_events: self.settled_events,
            in_flight_events: self.core.window.events() as u64,
            in_flight_bytes: self.core.window.bytes() as u64,
            received_lsn: self.core.progress.seen(),
            sent_lsn: self.core.sent_lsn(),
            confirmed_lsn: self.core.progress.reported(),
        };
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.in_flight_events.set(gauge(self.core.window.events()));
        self.metrics.in_flight_bytes.set(gauge(self.core.window.bytes()));
        self.metrics.connected.set(i64::from(self.stream.is_some()));
        let now_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.recorder.pass(&pass, now_ms);
    }
}

/// Microseconds since the Unix epoch.
fn unix_now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

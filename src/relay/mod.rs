//! The loop that carries events: the file to read first.
//!
//! One thread reads, decodes, admits, publishes, collects confirms and tells Postgres what it may
//! forget. It never blocks on a broker or a database: a session is opened elsewhere ([`link`]) and
//! handed over, the sink is polled, and the only waits are for the socket, bounded by the next
//! status update. So feedback cannot be starved, whatever the sink does.
//!
//! A broken stream changes nothing about what is in flight: it stays in flight, and what Postgres
//! sends again is recognised and passed over ([`crate::delivery::admitted`]).

mod admission;
mod admit;
mod candidate;
mod crash;
mod drain;
mod failure_policy;
mod faults;
pub mod link;
mod outlet;
pub mod polled;
mod session;
mod shaping;
pub mod sql_tasks;
mod stall;
mod startup;
pub mod walsender_query;
mod weather;

pub(crate) use faults::letters_unreadable;
pub use startup::{inspect, unfit_route, unfit_routes};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::admission::Taken;
use self::link::Link;
use self::outlet::{Outlet, Settling as _};
use self::session::Sessions;
use self::sql_tasks::SqlTasks;
use self::stall::{StallDetector, StreamState};
use self::walsender_query::WalsenderQuery;
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::settings::DeliverySettings;
use crate::health::{Pass, Phase, Recorder};
use crate::metrics::{Metrics, Stage};
use crate::relay::admit::Core;
use crate::sink::Sink;
use crate::source::settings::SourceSettings;
use crate::source::stream::{Stream, StreamError};

/// Status updates are at least this far apart under load: what a killed relay has confirmed and
/// not yet reported is repeated, so the gap is small; each update wakes the walsender, so it is
/// not zero.
const REPORT_GAP: Duration = Duration::from_millis(20);
/// Longest wait while something is in flight: confirms do not wake the loop.
const CONFIRM_TICK: Duration = Duration::from_millis(10);
/// The same while the sink holds events back: each waits for the confirms of others.
const HELD_BACK_TICK: Duration = Duration::from_millis(1);
/// Longest wait of an idle loop; keepalives below the socket's low water are answered from it.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// What others tell the loop.
#[derive(Debug, Default)]
pub struct Control {
    /// Stop: settle, report, end.
    pub stop: Arc<AtomicBool>,
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
    /// Writes dead letters.
    pub mailbox: DeadLetterWriter,
    /// What the reader of the dead-letter topic tells.
    pub log_news: Receiver<TailEvent>,
    /// Where sessions come from.
    pub link: Link,
    /// What the loop asks for over SQL.
    pub sql_tasks: SqlTasks,
    /// How Postgres is asked what it does while the stream is silent.
    pub walsender_query: WalsenderQuery,
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
    outlet: Outlet,
    /// Nothing may come in although the window has room.
    held: bool,
    /// Because the dead-letter topic is still to be read.
    unread: bool,
    stream: Option<Stream>,
    link: Link,
    sql_tasks: SqlTasks,
    link_asked: bool,
    /// The last session was ended for a new sink, and had done nothing wrong.
    let_go: bool,
    phase: Phase,
    text_only: bool,
    sessions: Sessions,
    stop_seen_at: Option<Instant>,
    last_report: Instant,
    /// When this pass had read from the socket.
    read_at: Option<Instant>,
    reply_wanted: bool,
    /// When the server was asked for a sign of life.
    probed_at: Option<Instant>,
    stall: StallDetector,
    source: SourceSettings,
    delivery: DeliverySettings,
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    recorder: Recorder,
    origin: Instant,
}

impl Relay {
    /// A relay with a fresh sink; asks for its first session at once.
    pub fn new(parts: Parts) -> Result<Relay, Fault> {
        let Parts { source, delivery, sink_factory, mailbox, log_news, .. } = parts;
        let Parts { link, sql_tasks, walsender_query, control, metrics, recorder, origin, .. } =
            parts;
        let now = Instant::now();
        let text_only = !source.binary;
        let core = Core::new(&source, &delivery, mailbox, &metrics)?;
        // While the sink finds its broker, the session can open.
        link.ask(text_only, false, Lsn::ZERO);
        Ok(Relay {
            core,
            outlet: Outlet::open(sink_factory, log_news, &delivery)?,
            held: false,
            unread: false,
            stream: None,
            link,
            sql_tasks,
            link_asked: true,
            let_go: false,
            phase: Phase::Connecting,
            text_only,
            sessions: Sessions::default(),
            stop_seen_at: None,
            last_report: now,
            read_at: None,
            reply_wanted: false,
            probed_at: None,
            stall: StallDetector::new(walsender_query, source.stall_timeout),
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
        self.hear()?;
        self.outlet.retry_due(now, &mut self.core);
        let more = self.intake(now)?;
        let collecting = Instant::now();
        if let Some(read_at) = self.read_at.take() {
            self.core.meter.stage(Stage::Publish, collecting - read_at);
        }
        self.collect(Duration::ZERO)?;
        self.core.meter.stage(Stage::Confirm, collecting.elapsed());
        self.feedback(now);
        self.publish_facts();
        Ok(more)
    }

    fn collect(&mut self, patience: Duration) -> Result<(), Fault> {
        self.outlet.collect(patience, &mut self.core, &mut self.recorder)
    }

    fn hear(&mut self) -> Result<(), Fault> {
        self.outlet.hear(&mut self.core.undertaker)
    }

    /// Reads and hands over what fits.
    fn intake(&mut self, now: Instant) -> Result<bool, Fault> {
        if let Some(catalog) = self.sql_tasks.catalog() {
            self.core.refresh(catalog);
        }
        self.held = !self.core.undertaker.may_take_in() || self.sql_tasks.awaits_catalog();
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let sink = match &mut self.outlet.sink {
            Some(sink) if self.core.window.has_room() && !self.held => sink,
            _ => {
                // Not read on purpose.
                stream.excuse_silence(now);
                self.stall.excuse();
                return Ok(false);
            }
        };
        let reading = Instant::now();
        let filled = stream.fill(now);
        let read_at = *self.read_at.insert(Instant::now());
        self.core.meter.stage(Stage::Read, read_at - reading);
        let closing = self.phase == Phase::Draining;
        loop {
            if closing && self.core.between_transactions() {
                return Ok(false);
            }
            let (taken, length) = match stream.peek() {
                Ok(Some((packet, length))) => (self.core.take(packet, &mut **sink)?, length),
                Ok(None) => break,
                Err(error) => return self.ended(error),
            };
            match taken {
                Taken::Yes => stream.consume(length),
                Taken::ReplyWanted => {
                    stream.consume(length);
                    self.reply_wanted = true;
                }
                Taken::Full => {
                    self.held = true;
                    stream.excuse_silence(now);
                    self.stall.excuse();
                    return Ok(false);
                }
                Taken::TextWanted => {
                    self.text_only = true;
                    self.disconnect();
                    return Ok(false);
                }
                Taken::LookAgain => {
                    self.sql_tasks.ask_catalog();
                    self.held = true;
                    stream.excuse_silence(now);
                    return Ok(false);
                }
                Taken::SinkBroken => {
                    self.outlet.break_sink("it refuses every event", self.core.in_flight());
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
        let tick = match &self.outlet.sink {
            Some(sink) if sink.holds_back() => HELD_BACK_TICK,
            _ if busy => CONFIRM_TICK,
            _ => IDLE_TICK.min(self.sessions.status_interval),
        };
        match &mut self.stream {
            Some(stream)
                if self.core.window.has_room() && self.outlet.sink.is_some() && !self.held =>
            {
                if let Err(error) = stream.wait(tick) {
                    self.lost(&StreamError::Io(error));
                }
                Ok(())
            }
            _ => self.collect(CONFIRM_TICK),
        }
    }

    /// Tells Postgres what it may forget, when that is news or a sign of life is due.
    fn feedback(&mut self, now: Instant) {
        let Some(stream) = &self.stream else { return };
        let reportable = self.core.reportable();
        let since = now.duration_since(self.last_report);
        let heard = stream.last_heard();
        let (seen, server) = (self.core.progress.seen(), self.recorder.server_lsn());
        if let Some(reason) = self.stall.judge(StreamState { now, heard, seen, server }) {
            let silent_s = now.saturating_duration_since(heard).as_secs();
            tracing::warn!(
                silent_s,
                reason,
                "no sign of life from postgres: the connection is taken for dead"
            );
            self.disconnect();
            return;
        }
        let half_dead = now.saturating_duration_since(heard) > self.source.stall_timeout / 2;
        let answered = self.probed_at.is_none_or(|at| heard > at);
        let probe = half_dead && answered;
        let worth_it = reportable > self.core.progress.reported() || self.reply_wanted;
        if probe || since >= self.sessions.status_interval || (worth_it && since >= REPORT_GAP) {
            if probe {
                self.probed_at = Some(now);
            }
            self.report(probe);
        }
    }

    fn report(&mut self, reply_requested: bool) {
        let Some(stream) = &mut self.stream else { return };
        let lsn = self.core.reportable();
        let reporting = Instant::now();
        match stream.report(lsn, unix_now_us(), reply_requested) {
            Ok(()) => {
                self.core.progress.on_reported(lsn);
                self.last_report = Instant::now();
                self.core.meter.stage(Stage::Feedback, self.last_report - reporting);
                self.reply_wanted = false;
            }
            Err(error) => self.lost(&StreamError::Io(error)),
        }
    }

    fn publish_facts(&mut self) {
        self.core.meter.flush();
        self.core.undertaker.show_breaker(unix_now_us());
        let unread = self.held && self.core.undertaker.is_unread();
        if unread && !self.unread {
            tracing::info!("no event is taken in before the dead-letter topic has been read");
        }
        self.unread = unread;
        let pass = Pass {
            phase: self.phase,
            sink_reachable: self.outlet.weather.is_fair(),
            letters_unread: unread,
            decoding_for: self.stall.decoding_since().map(|since| since.elapsed()),
            settled_events: self.outlet.settled_events,
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
pub(crate) fn unix_now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

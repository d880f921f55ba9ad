//! The loop that carries claimed rows: [`crate::polling`] brings them, and hears what became of them.
//!
//! The same sink, the same fates of events and the same rules as in the loop that reads the slot
//! ([`super`]); what differs is where events come from, and that there is no log to hold: a row
//! stays in the table until its verdict is written down.

mod core;
mod hand;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use self::core::Core;
use self::hand::Told;
use super::admission::Taken;
use super::outlet::{Outlet, Settling as _};
use super::{Control, SinkFactory, unix_now_us};
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::settings::DeliverySettings;
use crate::health::{Pass, Phase, Recorder};
use crate::metrics::Metrics;
use crate::pgoutput::relation::Relation;
use crate::polling::batch::Batch;
use crate::polling::maintenance::Late;
use crate::source::settings::SourceSettings;

/// Longest wait while something is in flight: new rows do not wake the sink.
const CONFIRM_TICK: Duration = Duration::from_millis(5);
/// Longest wait of an idle loop.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// At the end: how long the broker may confirm nothing before nothing more is expected of what has
/// failed, and of what is behind it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Everything the loop is made of.
pub struct Parts {
    /// `[source]`.
    pub source: SourceSettings,
    /// The table as its rows are brought.
    pub relation: Relation,
    /// `[delivery]`.
    pub delivery: DeliverySettings,
    /// How to make a sink.
    pub sink_factory: SinkFactory,
    /// Writes dead letters.
    pub mailbox: DeadLetterWriter,
    /// What the reader of the dead-letter topic tells.
    pub log_news: Receiver<TailEvent>,
    /// Most rows that all workers together bring at once.
    pub rows_at_once: usize,
    /// Claimed rows.
    pub batches: Receiver<Batch>,
    /// Verdicts for which no worker waits.
    pub late: mpsc::Sender<Late>,
    /// Shows the workers whether rows are welcome.
    pub open: Arc<AtomicBool>,
    /// Is there a connection to the database?
    pub connected: Arc<AtomicBool>,
    /// What others tell the loop.
    pub control: Arc<Control>,
    /// Where the loop counts.
    pub metrics: Arc<Metrics>,
    /// Where the loop says how it stands.
    pub recorder: Recorder,
    /// The origin of `recorder`'s clock.
    pub origin: Instant,
}

/// The loop.
pub struct Polled {
    core: Core,
    outlet: Outlet,
    batches: Receiver<Batch>,
    late: mpsc::Sender<Late>,
    /// Verdicts for which there was no room on the way to the keeper.
    waiting: VecDeque<Late>,
    open: Arc<AtomicBool>,
    connected: Arc<AtomicBool>,
    /// With more rows, or bytes, in hand no more are welcome.
    rows_max: usize,
    bytes_max: usize,
    draining: bool,
    drain_timeout: Duration,
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    recorder: Recorder,
    origin: Instant,
}

impl Polled {
    /// With a fresh sink.
    pub fn new(parts: Parts) -> Result<Polled, Fault> {
        let Parts { source, relation, delivery, sink_factory, mailbox, log_news, .. } = parts;
        let Parts { batches, late, open, connected, control, metrics, recorder, origin, .. } =
            parts;
        let rows_max = delivery.window_events_max.saturating_sub(parts.rows_at_once);
        Ok(Polled {
            core: Core::new(&source, &relation, &delivery, mailbox, &metrics)?,
            outlet: Outlet::open(sink_factory, log_news, &delivery)?,
            batches,
            late,
            waiting: VecDeque::new(),
            open,
            connected,
            rows_max,
            bytes_max: delivery.window_bytes_max / 2,
            draining: false,
            drain_timeout: delivery.drain_timeout,
            control,
            metrics,
            recorder,
            origin,
        })
    }

    /// Carries rows until told to stop, or until it must not go on.
    pub fn run(mut self) -> Result<(), Fault> {
        let mut outcome = Ok(());
        while outcome.is_ok() && !self.control.stop.load(Ordering::Relaxed) {
            outcome = self.pass().and_then(|()| self.rest());
        }
        self.drain(outcome.is_err());
        outcome
    }

    /// One turn: everything that can be done without waiting.
    fn pass(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        if self.outlet.rebuild(now, &mut self.recorder)? {
            self.core.rewind();
        }
        self.outlet.hear(&mut self.core.undertaker)?;
        self.outlet.retry_due(now, &mut self.core);
        while let Ok(batch) = self.batches.try_recv() {
            self.core.take(batch);
        }
        self.offer()?;
        self.outlet.collect(Duration::ZERO, &mut self.core, &mut self.recorder)?;
        self.tell();
        self.publish_facts();
        Ok(())
    }

    /// Hands over what the sink takes.
    fn offer(&mut self) -> Result<(), Fault> {
        if !self.core.undertaker.may_take_in() {
            return Ok(());
        }
        while let Some(sink) = &mut self.outlet.sink {
            match self.core.offer(&mut **sink)? {
                Some(Taken::Yes) => {}
                Some(Taken::SinkBroken) => {
                    self.outlet.break_sink("it refuses every event", self.core.in_flight());
                }
                Some(_) | None => break,
            }
        }
        Ok(())
    }

    /// Waits for whatever comes next.
    fn rest(&mut self) -> Result<(), Fault> {
        if self.core.in_flight() > 0 || self.core.hand.has_queued() {
            return self.outlet.collect(CONFIRM_TICK, &mut self.core, &mut self.recorder);
        }
        match self.batches.recv_timeout(IDLE_TICK) {
            Ok(batch) => self.core.take(batch),
            Err(RecvTimeoutError::Timeout) => {}
            // The workers have ended, and with them all of this.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(CONFIRM_TICK),
        }
        Ok(())
    }

    /// Tells what has become of rows.
    fn tell(&mut self) {
        for Told { claim, verdicts, answer } in self.core.hand.tell() {
            // A worker that is gone does not settle what it is told.
            let untold = match answer {
                Some(answer) => answer.send(verdicts).err(),
                None => Some(verdicts),
            };
            self.waiting.extend(untold.map(|verdicts| Late { claim, verdicts }));
        }
        while let Some(late) = self.waiting.pop_front() {
            if let Err(error) = self.late.try_send(late) {
                self.waiting.push_front(error.into_inner());
                break;
            }
        }
    }

    /// Waits for what is on its way, and gives back the rest.
    fn drain(&mut self, failed: bool) {
        self.draining = true;
        self.open.store(false, Ordering::Relaxed);
        let deadline = Instant::now() + self.drain_timeout;
        let mut last = (self.outlet.settled_events, Instant::now());
        while self.core.in_flight() > 0 && Instant::now() < deadline && self.outlet.sink.is_some() {
            if last.0 != self.outlet.settled_events {
                last = (self.outlet.settled_events, Instant::now());
            }
            let hopeless = failed || self.core.hand.failing() > 0;
            if hopeless && last.1.elapsed() > LAST_WORDS {
                break;
            }
            let patience = Duration::from_millis(2);
            let (core, recorder) = (&mut self.core, &mut self.recorder);
            let heard = self.outlet.hear(&mut core.undertaker);
            let collected = heard.and_then(|()| self.outlet.collect(patience, core, recorder));
            if let Err(fault) = collected {
                fault.log();
                break;
            }
            self.publish_facts();
        }
        // Nothing more is sent, so that nothing overtakes what others publish of the same keys.
        self.outlet.sink = None;
        while let Ok(batch) = self.batches.try_recv() {
            self.core.take(batch);
        }
        self.core.hand.give_back();
        self.tell();
        // A database that is away must not hold up the end: the lease runs out.
        let deadline = Instant::now() + LAST_WORDS;
        while !self.waiting.is_empty() && !self.late.is_closed() && Instant::now() < deadline {
            std::thread::sleep(CONFIRM_TICK);
            self.tell();
        }
        self.publish_facts();
    }

    fn publish_facts(&mut self) {
        self.core.meter.flush();
        self.core.undertaker.show_breaker(unix_now_us());
        let connected = self.connected.load(Ordering::Relaxed);
        let letters_unread = !self.core.undertaker.may_take_in();
        let welcome = self.outlet.sink.is_some()
            && self.outlet.weather.is_fair()
            && !letters_unread
            && !self.draining
            && self.waiting.is_empty()
            && self.core.hand.unsettled() <= self.rows_max
            && self.core.hand.held_bytes() <= self.bytes_max;
        self.open.store(welcome, Ordering::Relaxed);
        let phase = match (self.draining, connected) {
            (true, _) => Phase::Draining,
            (false, true) => Phase::Polling,
            (false, false) => Phase::Connecting,
        };
        let hand = &self.core.hand;
        let pass = Pass {
            phase,
            sink_reachable: self.outlet.weather.is_fair(),
            letters_unread,
            decoding_for: None,
            settled_events: self.outlet.settled_events,
            in_flight_events: hand.in_flight() as u64,
            in_flight_bytes: hand.bytes() as u64,
            received_lsn: Lsn::ZERO,
            sent_lsn: Lsn::ZERO,
            confirmed_lsn: Lsn::ZERO,
        };
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.in_flight_events.set(gauge(hand.in_flight()));
        self.metrics.in_flight_bytes.set(gauge(hand.bytes()));
        self.metrics.connected.set(i64::from(connected));
        let now_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.recorder.pass(&pass, now_ms);
    }
}

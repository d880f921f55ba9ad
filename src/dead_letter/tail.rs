//! Reads the dead-letter topic on a thread of its own for as long as a relay runs: sets the gauges, and
//! sends the data loop which keys are parked and what an earlier process has just written.
//!
//! The data loop never waits for it, except for the parked keys where they matter, and the process
//! never does: a reader that waits for the broker is left behind at the end.
//!
//! It begins when the stream is open: then the letters of the relay that had the slot before are in
//! the topic. Where no keys are parked, the loop needs only the last letters: they are sought by
//! time, and sent before the whole topic is read.
//!
//! There is one warning per trouble. What keeps the topic from being read at all is sent to the loop,
//! which decides; a broker that is away is reported only when it stays away, because the sink reports
//! it first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::reader::{DeadLetterTopic, LogReader, NextRecord};
use super::tail_event::{TailEnd, TailEvent, TailState};
use super::writer::DeadLetterSettings;
use crate::base::backoff::Backoff;
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::health::{Facts, Phase};
use crate::metrics::Metrics;
use crate::sink::log::ReadFrom;
use crate::sink::{Broker, UNREACHABLE};

/// How often an idle reader checks whether it must end, and how old the oldest letter is.
const TICK: Duration = Duration::from_millis(100);
/// How often the gauges are set.
const GAUGES_EVERY: Duration = Duration::from_secs(1);
/// How long a full channel is left alone. The loop takes hundreds with every pass.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// How long gauges keep their last value while the topic cannot be read.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Waits between readings.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long a stop waits for the thread.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// The broker is away: that mends itself.
const AWAY: [&str; 2] = [UNREACHABLE, "dead-letter.silent"];

pub(crate) struct TailConfig {
    pub(crate) broker: Arc<dyn Broker>,
    /// Whose letters are sent to the loop.
    pub(crate) slot: String,
    /// Must the loop know which keys are parked?
    pub(crate) parks_keys: bool,
    pub(crate) settings: DeadLetterSettings,
    /// To the data loop.
    pub(crate) events: SyncSender<TailEvent>,
    pub(crate) metrics: Arc<Metrics>,
    /// What the loop is doing.
    pub(crate) facts: Arc<Facts>,
}

/// The running thread.
pub(crate) struct DeadLetterTail {
    stop: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl DeadLetterTail {
    pub(crate) fn start(config: TailConfig) -> Result<DeadLetterTail, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let (end, ended) = mpsc::sync_channel(1);
        let stopped = Arc::clone(&stop);
        runtime::spawn("dead-letters", move || {
            if wait_for_slot(&config.facts, &stopped) {
                TailThread::new(config, stopped).run();
            }
            drop(end);
        })?;
        Ok(DeadLetterTail { stop, ended })
    }

    /// Ends the thread, or leaves it behind if it is waiting for a broker.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.ended.recv_timeout(STOP_GRACE) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::debug!("the reader of the dead-letter topic still waits for the broker");
        }
    }
}

/// What keeps the loop from knowing which keys are parked, and so from starting where that matters.
pub(crate) fn inspect(broker: &dyn Broker, settings: &DeadLetterSettings) -> Result<(), Fault> {
    let stop = AtomicBool::new(false);
    let topic = DeadLetterTopic { broker, address: &settings.address, stop: &stop };
    // The end of the log is enough: who may read that may read all of it.
    let read = topic.reader(ReadFrom::Time(unix_now_us())).and_then(|mut reader| {
        while let NextRecord::Pause = reader.next(TICK)? {}
        Ok(())
    });
    match read {
        Err(fault) if !AWAY.contains(&fault.code) => {
            Err(unreadable(&in_one_line(&fault), settings))
        }
        _ => Ok(()),
    }
}

/// Keys may be parked, and it cannot be known which.
pub(crate) fn unreadable(reason: &str, settings: &DeadLetterSettings) -> Fault {
    Fault::new(
        Exit::Sink,
        "dead-letter.unreadable",
        format!("park_key needs to read the dead-letter topic: {reason}"),
        format!("dead_letter.topic = {:?}", settings.address.topic),
        "walrelay check; grant the right to read it, or choose another delivery.on_dead_letter",
    )
}

fn in_one_line(fault: &Fault) -> String {
    format!("{} ({}); to mend it: {}", fault.what, fault.place, fault.mend)
}

/// Waits until the slot is ours; until then the checks of the start report what is wrong. False when
/// the thread must end.
fn wait_for_slot(facts: &Facts, stop: &AtomicBool) -> bool {
    let before = [Phase::Starting, Phase::Standby, Phase::Connecting, Phase::AwaitingPrimary];
    while before.contains(&facts.snapshot().pass.phase) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(TICK / 5);
    }
    true
}

/// Why a reading ended.
enum ReadingEnd {
    /// The thread must end.
    Stopped,
    Fault(Fault),
}

impl From<Fault> for ReadingEnd {
    fn from(fault: Fault) -> ReadingEnd {
        ReadingEnd::Fault(fault)
    }
}

struct TailThread {
    config: TailConfig,
    stop: Arc<AtomicBool>,
    state: TailState,
    /// Earlier letters do not matter to the breaker.
    since_unix_us: i64,
    backoff: Backoff,
    gauges_set_at: Option<Instant>,
    /// The loop knows that the topic cannot be read.
    has_reported: bool,
    trouble: Option<ReadTrouble>,
    /// It was logged that letters are only counted.
    has_logged_beyond: bool,
}

/// The topic cannot be read.
struct ReadTrouble {
    since: Instant,
    is_logged: bool,
    fault: Fault,
}

impl TailThread {
    fn new(config: TailConfig, stop: Arc<AtomicBool>) -> TailThread {
        let window_us = i64::try_from(config.settings.burst_window.as_micros()).unwrap_or(i64::MAX);
        let since_unix_us = unix_now_us().saturating_sub(window_us);
        TailThread {
            stop,
            state: TailState::new(&config.slot, since_unix_us),
            since_unix_us,
            config,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            gauges_set_at: None,
            has_reported: false,
            trouble: None,
            has_logged_beyond: false,
        }
    }

    fn run(mut self) {
        loop {
            let waited = match self.read() {
                Ok(()) => Ok(()),
                Err(ReadingEnd::Fault(fault)) => self.wait_after(fault),
                Err(ReadingEnd::Stopped) => return,
            };
            if waited.is_err() {
                return;
            }
        }
    }

    /// Reads from the beginning and on, until that is no longer possible, or must begin anew.
    fn read(&mut self) -> Result<(), ReadingEnd> {
        if !self.config.parks_keys && !self.state.caught_up() {
            self.read_last()?;
        }
        let mut reader = self.open(ReadFrom::Beginning)?;
        self.state.begin();
        let mut events = Vec::new();
        loop {
            match reader.next(TICK)? {
                NextRecord::Record(record) => {
                    self.mended();
                    self.state.read(&record, &mut events);
                    events.drain(..).try_for_each(|event| self.send(event))?;
                }
                NextRecord::Pause => {}
                NextRecord::End => {
                    let end = self.state.end();
                    self.backoff.succeeded();
                    self.mended();
                    self.set_gauges();
                    match end {
                        TailEnd::CaughtUp => self.send(TailEvent::CaughtUp)?,
                        TailEnd::Again => {}
                        TailEnd::Replaced => return Ok(()),
                    }
                }
            }
            self.tick()?;
        }
    }

    fn open(&self, from: ReadFrom) -> Result<LogReader, Fault> {
        let TailConfig { broker, settings, .. } = &self.config;
        DeadLetterTopic { broker: &**broker, address: &settings.address, stop: &self.stop }
            .reader(from)
    }

    /// Sends the loop what matters to the breaker.
    fn read_last(&mut self) -> Result<(), ReadingEnd> {
        let mut reader = self.open(ReadFrom::Time(self.since_unix_us))?;
        let mut last = TailState::new(&self.config.slot, self.since_unix_us);
        let mut events = Vec::new();
        loop {
            match reader.next(TICK)? {
                NextRecord::Record(record) => last.read(&record, &mut events),
                NextRecord::Pause => {}
                NextRecord::End => break,
            }
            self.tick()?;
        }
        // Not before the end: another attempt would send them again.
        events.into_iter().try_for_each(|event| self.send(event))?;
        self.state.skip_letters();
        self.send(TailEvent::CaughtUp)
    }

    /// Sends an event to the loop, waiting while the channel is full.
    fn send(&mut self, event: TailEvent) -> Result<(), ReadingEnd> {
        let mut waiting = event;
        loop {
            match self.config.events.try_send(waiting) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(ReadingEnd::Stopped),
                Err(TrySendError::Full(back)) => waiting = back,
            }
            std::thread::sleep(FULL_PAUSE);
            self.tick()?;
        }
    }

    /// What must be done however little is read.
    fn tick(&mut self) -> Result<(), ReadingEnd> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ReadingEnd::Stopped);
        }
        if self.gauges_set_at.is_none_or(|at| at.elapsed() >= GAUGES_EVERY) {
            self.set_gauges();
        }
        Ok(())
    }

    /// Sets the gauges, and logs a trouble that stays.
    fn set_gauges(&mut self) {
        let is_stale = |trouble: &&mut ReadTrouble| trouble.since.elapsed() >= STALE_AFTER;
        let (depth, age_seconds) = if let Some(trouble) = self.trouble.as_mut().filter(is_stale) {
            if !std::mem::replace(&mut trouble.is_logged, true) {
                let error = in_one_line(&trouble.fault);
                tracing::warn!(error, "the dead-letter topic can no longer be read");
            }
            (f64::NAN, f64::NAN)
        } else {
            let Some((open, oldest)) = self.state.open() else { return };
            if self.state.only_counts() && !std::mem::replace(&mut self.has_logged_beyond, true) {
                tracing::warn!(
                    open,
                    "more dead letters are open than can be told apart: further ones are counted, twice where they are written twice"
                );
            }
            let age_us = oldest.map_or(0, |at| unix_now_us().saturating_sub(at).max(0));
            (open as f64, age_us as f64 / 1e6)
        };
        self.config.metrics.dlq_depth.set(depth);
        self.config.metrics.dlq_oldest_age_seconds.set(age_seconds);
        self.gauges_set_at = Some(Instant::now());
    }

    /// The topic can be read.
    fn mended(&mut self) {
        if self.trouble.take().is_some_and(|trouble| trouble.is_logged) {
            tracing::info!("the dead-letter topic can be read again");
        }
    }

    /// Waits for the next reading.
    fn wait_after(&mut self, fault: Fault) -> Result<(), ReadingEnd> {
        let is_away = AWAY.contains(&fault.code);
        let reason = in_one_line(&fault);
        let new = |fault| ReadTrouble { since: Instant::now(), is_logged: false, fault };
        let trouble = self.trouble.get_or_insert_with(|| new(fault.clone()));
        trouble.fault = fault;
        if !is_away && !self.has_reported && !self.state.caught_up() {
            self.has_reported = true;
            trouble.is_logged = true;
            self.send(TailEvent::Unreadable(reason))?;
        }
        let until = Instant::now() + self.backoff.next_delay();
        while Instant::now() < until {
            std::thread::sleep(TICK);
            // The state is still that of the last reading.
            self.tick()?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;

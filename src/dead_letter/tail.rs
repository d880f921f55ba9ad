//! Reads the dead-letter topic on a thread of its own for as long as a relay runs: sets the gauges,
//! and sends the data loop which keys are parked and what an earlier process has just written.
//!
//! The data loop waits for it with its first dead letter, because an earlier process may have been
//! stopped; and with its first event where parked keys or a stop matter to that. The end of a relay
//! does not wait for a thread that is blocked in a call to the broker.
//!
//! Reading begins once the stream is open: by then the topic has the dead letters of the relay that
//! held the slot before. All of it is read again when this relay has taken over from a peer, which
//! may have written to the topic meanwhile.
//!
//! Each trouble is logged once. What keeps the topic from being read
//! at all is sent to the loop, which decides; a fault that may pass is
//! logged only after a while, because the sink reports an outage first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::owner::LetterOwner;
use super::reader::DeadLetterTopic;
use super::tail_event::{ReadRequests, TailEvent, TailState};
use super::writer::{DeadLetterSettings, SystemId, unreadable};
use crate::base::backoff::Backoff;
use crate::base::clock::unix_now_us;
use crate::base::random;

use crate::base::error::Fault;
use crate::base::runtime;
use crate::metrics::Metrics;
use crate::sink::Broker;
use crate::sink::log::{LogRead, ReadFrom, SILENT};

/// How often an idle reader checks whether it must end.
const TICK: Duration = Duration::from_millis(100);
const GAUGES_EVERY: Duration = Duration::from_secs(1);
/// Pause before the next attempt to send on a full channel. The loop takes hundreds in each pass.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// How long gauges keep their last value while the topic cannot be read.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Shortest and longest pause between readings.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long a stop waits for the thread.
const STOP_GRACE: Duration = Duration::from_secs(1);

pub(crate) struct TailConfig {
    pub(crate) broker: Arc<dyn Broker>,
    /// Dead letters of other slots and systems are not sent to the loop.
    pub(crate) slot: String,
    pub(crate) system: SystemId,
    pub(crate) settings: DeadLetterSettings,
    pub(crate) events: SyncSender<TailEvent>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether the loop reads the slot or the table by now.
    pub(crate) has_source: Box<dyn Fn() -> bool + Send>,
    pub(crate) requests: ReadRequests,
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
            if wait_for_source(&*config.has_source, &stopped) {
                TailThread::new(config, stopped).run();
            }
            drop(end);
        })?;
        Ok(DeadLetterTail { stop, ended })
    }

    /// Ends the thread, or leaves it behind if the broker keeps it waiting.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.ended.recv_timeout(STOP_GRACE) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::debug!("the reader of the dead-letter topic still waits for the broker");
        }
    }
}

/// Checks that the topic can be read, which the loop needs to know which keys are parked. A fault that
/// may pass is returned as it is.
pub(crate) fn inspect(broker: &dyn Broker, settings: &DeadLetterSettings) -> Result<(), Fault> {
    let stop = AtomicBool::new(false);
    let topic = DeadLetterTopic::of_relay(broker, &settings.address, &stop);
    // Whoever may read the end of the log may read all of it.
    let read = topic.each(ReadFrom::Time(unix_now_us()), |_| Ok(false));
    read.map_err(|fault| match fault.may_pass {
        true => fault,
        false => unreadable(&in_one_line(&fault), settings),
    })
}

fn in_one_line(fault: &Fault) -> String {
    format!("{} ({}); help: {}", fault.what, fault.place, fault.mend)
}

/// Waits until this relay has its source; until then the checks of the start report what is wrong.
/// False when the thread must end.
fn wait_for_source(has_source: &dyn Fn() -> bool, stop: &AtomicBool) -> bool {
    while !has_source() {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(TICK / 5);
    }
    true
}

/// Dead letters of before do not matter to the breaker.
fn breaker_since(settings: &DeadLetterSettings) -> i64 {
    let window_us = i64::try_from(settings.burst_window.as_micros()).unwrap_or(i64::MAX);
    unix_now_us().saturating_sub(window_us)
}

/// Why a reading ended: a fault, or none where the thread must end.
type ReadingEnd = Option<Fault>;

struct TailThread {
    config: TailConfig,
    stop: Arc<AtomicBool>,
    state: TailState,
    /// The number of the last request to read again that was met.
    met: u64,
    backoff: Backoff,
    gauges_set_at: Option<Instant>,
    /// The loop knows that the topic cannot be read.
    has_reported: bool,
    trouble: Option<ReadTrouble>,
    /// The loop knows that nothing comes.
    has_reported_silence: bool,
    /// It was logged that further dead letters are only counted.
    has_logged_beyond: bool,
}

/// Why the topic cannot be read now.
struct ReadTrouble {
    since: Instant,
    is_logged: bool,
    fault: Fault,
}

impl TailThread {
    fn new(config: TailConfig, stop: Arc<AtomicBool>) -> TailThread {
        let owner = LetterOwner::new(&config.slot, config.system.get().as_deref());
        TailThread {
            stop,
            met: 0,
            state: TailState::new(owner, breaker_since(&config.settings)),
            config,
            backoff: random::backoff(BACKOFF.0, BACKOFF.1),
            gauges_set_at: None,
            has_reported: false,
            trouble: None,
            has_reported_silence: false,
            has_logged_beyond: false,
        }
    }

    fn run(mut self) {
        loop {
            let outcome = match self.read() {
                Err(Some(fault)) => self.wait_after(fault),
                outcome => outcome,
            };
            if outcome.is_err() {
                return;
            }
        }
    }

    /// Reads the whole topic and what is written from then on. Returns when it must begin anew.
    fn read(&mut self) -> Result<(), ReadingEnd> {
        self.meet_request()?;
        let TailConfig { broker, settings, .. } = &self.config;
        let topic = DeadLetterTopic::of_relay(&**broker, &settings.address, &self.stop);
        let mut reader = topic.reader(ReadFrom::Beginning)?;
        self.state.begin();
        let mut events = Vec::new();
        loop {
            match reader.next(TICK)? {
                LogRead::Entry(record) => {
                    // A reading that does not come to the end mends nothing.
                    if self.state.open().is_some() {
                        self.mended();
                    }
                    self.state.read(&record, unix_now_us(), &mut events);
                }
                LogRead::Nothing => {}
                LogRead::End => {
                    let is_replaced = self.state.end(&mut events);
                    self.backoff.succeeded();
                    self.mended();
                    self.set_gauges();
                    if is_replaced {
                        return Ok(());
                    }
                }
            }
            self.send(&mut events)?;
            self.tick()?;
            if self.meet_request()? {
                return Ok(());
            }
        }
    }

    /// Begins to read again if the loop has requested that.
    fn meet_request(&mut self) -> Result<bool, ReadingEnd> {
        let last = self.config.requests.last();
        if std::mem::replace(&mut self.met, last) == last {
            return Ok(false);
        }
        self.state.count_again(breaker_since(&self.config.settings));
        self.has_reported = false;
        self.send(&mut vec![TailEvent::ReadsAgain(last)])?;
        Ok(true)
    }

    /// Sends events to the loop, waiting while the channel is full.
    fn send(&mut self, events: &mut Vec<TailEvent>) -> Result<(), ReadingEnd> {
        for mut event in events.drain(..) {
            loop {
                match self.config.events.try_send(event) {
                    Ok(()) => break,
                    Err(TrySendError::Disconnected(_)) => return Err(None),
                    Err(TrySendError::Full(back)) => event = back,
                }
                std::thread::sleep(FULL_PAUSE);
                self.tick()?;
            }
        }
        Ok(())
    }

    /// Called at least every [`TICK`], however little is read.
    fn tick(&mut self) -> Result<(), ReadingEnd> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(None);
        }
        if self.gauges_set_at.is_none_or(|at| at.elapsed() >= GAUGES_EVERY) {
            self.set_gauges();
        }
        Ok(())
    }

    /// Sets the gauges, and logs a trouble that lasts. A thread that was left behind no longer knows.
    fn set_gauges(&mut self) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let is_stale = |trouble: &&mut ReadTrouble| trouble.since.elapsed() >= STALE_AFTER;
        let (depth, age_seconds) = if let Some(trouble) = self.trouble.as_mut().filter(is_stale) {
            if !std::mem::replace(&mut trouble.is_logged, true) {
                let error = in_one_line(&trouble.fault);
                tracing::warn!(
                    code = "dead-letter.unread",
                    error,
                    "the dead-letter topic can no longer be read"
                );
            }
            (f64::NAN, f64::NAN)
        } else {
            let Some((open, oldest)) = self.state.open() else { return };
            if self.state.only_counts() && !std::mem::replace(&mut self.has_logged_beyond, true) {
                tracing::warn!(
                    code = "dead-letter.uncounted",
                    open,
                    "too many dead letters are open to be known one by one: one that is written twice counts twice"
                );
            }
            let age_us = oldest.map_or(0, |at| unix_now_us().saturating_sub(at).max(0));
            (open as f64, age_us as f64 / 1e6)
        };
        self.config.metrics.dlq_depth.set(depth);
        self.config.metrics.dlq_oldest_age_seconds.set(age_seconds);
        self.gauges_set_at = Some(Instant::now());
    }

    fn mended(&mut self) {
        if self.trouble.take().is_some_and(|trouble| trouble.is_logged) {
            tracing::info!("the dead-letter topic can be read again");
        }
    }

    /// Reports the fault, and waits until the next reading.
    fn wait_after(&mut self, fault: Fault) -> Result<(), ReadingEnd> {
        let reason = in_one_line(&fault);
        let (is_silent, may_pass) = (fault.code == SILENT, fault.may_pass);
        let new = |fault| ReadTrouble { since: Instant::now(), is_logged: false, fault };
        let trouble = self.trouble.get_or_insert_with(|| new(fault.clone()));
        trouble.fault = fault;
        if !may_pass && !self.has_reported && !self.state.caught_up() {
            self.has_reported = true;
            trouble.is_logged = true;
            self.send(&mut vec![TailEvent::Unreadable(reason)])?;
        } else if is_silent
            && !self.state.caught_up()
            && !std::mem::replace(&mut self.has_reported_silence, true)
        {
            self.send(&mut vec![TailEvent::Silent(reason)])?;
        }
        let until = Instant::now() + self.backoff.next_delay();
        while Instant::now() < until {
            std::thread::sleep(TICK);
            // The state is still that of the last reading.
            self.tick()?;
            // A request is met at once: no event is taken in before.
            if self.config.requests.last() != self.met {
                self.backoff.succeeded();
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;

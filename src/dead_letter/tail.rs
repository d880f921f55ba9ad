//! The dead-letter topic followed on a thread of its own: its gauges stay true, and the data loop
//! hears which keys are parked and what an earlier process has just written.
//!
//! The data loop never waits for it, except for which keys are parked where that matters, and the
//! process never does: a reader that is in the broker's hands is left behind at the end.
//!
//! It begins when the stream is open: what the relay that had the slot before has written is in the
//! topic then. Where no keys are parked, the loop needs only the last letters: they are sought by
//! time, and told before the whole topic is read.
//!
//! One warning per trouble. What keeps the topic from being read at all is told to the loop, which
//! decides; a broker that is away is only told of when it stays away, because the sink says so first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use crate::base::backoff::Backoff;
use crate::base::clock::unix_now_us;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::dead_letter::follower::{Ended, Finding, Follower};
use crate::dead_letter::reader::{self, DeadLetterTopic, Next};
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer::DeadLetterSettings;
use crate::health::{Facts, Phase};
use crate::metrics::Metrics;
use crate::relay::letters_unreadable;
use crate::sink::log::ReadFrom;
use crate::sink::{Broker, UNREACHABLE};

/// How often an idle reader looks round: whether it must end, and how old the oldest letter is.
const TICK: Duration = Duration::from_millis(100);
/// How often the gauges are set.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// How long a full channel is left alone. The loop takes hundreds with every pass.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// How long gauges that cannot be looked after keep their last value.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Waits between readings.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long a stop waits for the thread.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// The broker is away: that mends itself.
const AWAY: [&str; 2] = [UNREACHABLE, "dead-letter.silent"];

/// What the follower is made of.
pub struct Follow {
    /// Whose topic.
    pub broker: Arc<dyn Broker>,
    /// Whose letters the loop must hear of.
    pub slot: String,
    /// Must the loop know which keys are parked?
    pub parks_keys: bool,
    /// `[dead_letter]`.
    pub settings: DeadLetterSettings,
    /// The data loop's ear.
    pub news: SyncSender<TailEvent>,
    /// Where the topic is shown.
    pub metrics: Arc<Metrics>,
    /// Where the loop stands.
    pub facts: Arc<Facts>,
}

/// A running follower.
pub struct Following {
    stop: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Following {
    /// Follows on a new thread.
    pub fn start(follow: Follow) -> Result<Following, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let (end, ended) = mpsc::sync_channel(1);
        let stopped = Arc::clone(&stop);
        runtime::spawn("dead-letters", move || {
            if has_slot(&follow.facts, &stopped) {
                Reader::new(follow, stopped).run();
            }
            drop(end);
        })?;
        Ok(Following { stop, ended })
    }

    /// Ends it. It may be waiting for a broker: then it is left alone.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let left = self.ended.recv_timeout(STOP_GRACE) == Err(mpsc::RecvTimeoutError::Timeout);
        if left {
            tracing::debug!("the reader of the dead-letter topic still waits for the broker");
        }
    }
}

/// What keeps the loop from knowing which keys are parked, and so from starting where that matters.
pub fn inspect(broker: &dyn Broker, settings: &DeadLetterSettings) -> Result<(), Fault> {
    let stop = AtomicBool::new(false);
    let archive = DeadLetterTopic { broker, address: &settings.address, stop: &stop };
    // The end of the log is enough: who may read that may read all of it.
    let read = archive.reader(ReadFrom::Time(unix_now_us())).and_then(|mut reader| {
        while let Next::Pause = reader.next(TICK)? {}
        Ok(())
    });
    match read {
        Err(fault) if !AWAY.contains(&fault.code) => {
            Err(letters_unreadable(&in_one_line(&fault), settings))
        }
        _ => Ok(()),
    }
}

/// Waits until the slot is ours; until then the preflight is the one to say what is wrong. False
/// when it must end.
fn has_slot(facts: &Facts, stop: &AtomicBool) -> bool {
    let begins = [Phase::Starting, Phase::Standby, Phase::Connecting, Phase::AwaitingPrimary];
    while begins.contains(&facts.snapshot().phase) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(TICK / 5);
    }
    true
}

/// Why a reading ended.
enum End {
    /// The follower must end.
    Stopped,
    /// The log cannot be read on.
    Fault(Fault),
}

impl std::convert::From<Fault> for End {
    fn from(fault: Fault) -> End {
        End::Fault(fault)
    }
}

struct Reader {
    follow: Follow,
    stop: Arc<AtomicBool>,
    follower: Follower,
    /// Earlier letters are of no concern to the breaker.
    since_unix_us: i64,
    backoff: Backoff,
    shown_at: Option<Instant>,
    /// The loop knows that the topic cannot be read.
    told: bool,
    trouble: Option<Trouble>,
    /// A person knows that letters are only counted.
    told_beyond: bool,
}

/// The topic cannot be read.
struct Trouble {
    since: Instant,
    /// A person was told.
    warned: bool,
    fault: Fault,
}

impl Reader {
    fn new(follow: Follow, stop: Arc<AtomicBool>) -> Reader {
        let window_us = i64::try_from(follow.settings.burst_window.as_micros()).unwrap_or(i64::MAX);
        let since_unix_us = unix_now_us().saturating_sub(window_us);
        Reader {
            stop,
            follower: Follower::new(&follow.slot, since_unix_us),
            since_unix_us,
            follow,
            told: false,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            shown_at: None,
            trouble: None,
            told_beyond: false,
        }
    }

    fn run(mut self) {
        loop {
            let outcome = match self.read() {
                Ok(()) => Ok(()),
                Err(End::Fault(fault)) => self.suffer(fault),
                Err(End::Stopped) => return,
            };
            if outcome.is_err() {
                return;
            }
        }
    }

    /// Reads from the beginning and follows, until that cannot go on, or must begin anew.
    fn read(&mut self) -> Result<(), End> {
        if !self.follow.parks_keys && !self.follower.caught_up() {
            self.read_last()?;
        }
        let mut reader = self.open(ReadFrom::Beginning)?;
        self.follower.begin();
        let mut findings = Vec::new();
        loop {
            match reader.next(TICK)? {
                Next::LogRecord(record) => {
                    self.mended();
                    self.follower.read(&record, &mut findings);
                    findings.drain(..).try_for_each(|finding| self.tell(news(finding)))?;
                }
                Next::Pause => {}
                Next::End => {
                    let ended = self.follower.end();
                    self.backoff.succeeded();
                    self.mended();
                    self.show();
                    match ended {
                        Ended::CaughtUp => self.tell(TailEvent::CaughtUp)?,
                        Ended::Again => {}
                        Ended::MadeAnew => return Ok(()),
                    }
                }
            }
            self.look_round()?;
        }
    }

    fn open(&self, from: ReadFrom) -> Result<reader::Reader, End> {
        let Follow { broker, settings, .. } = &self.follow;
        let archive =
            DeadLetterTopic { broker: &**broker, address: &settings.address, stop: &self.stop };
        Ok(archive.reader(from)?)
    }

    /// Tells the loop what the breaker must know.
    fn read_last(&mut self) -> Result<(), End> {
        let mut reader = self.open(ReadFrom::Time(self.since_unix_us))?;
        let mut last = Follower::new(&self.follow.slot, self.since_unix_us);
        let mut findings = Vec::new();
        loop {
            match reader.next(TICK)? {
                Next::LogRecord(record) => last.read(&record, &mut findings),
                Next::Pause => {}
                Next::End => break,
            }
            self.look_round()?;
        }
        // Not before the end: another attempt would tell them again.
        findings.into_iter().try_for_each(|finding| self.tell(news(finding)))?;
        self.follower.skip_letters();
        self.tell(TailEvent::CaughtUp)
    }

    /// Tells the loop, waiting for it where it has not taken in what was told before.
    fn tell(&mut self, news: TailEvent) -> Result<(), End> {
        let mut waiting = news;
        loop {
            match self.follow.news.try_send(waiting) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(End::Stopped),
                Err(TrySendError::Full(back)) => waiting = back,
            }
            std::thread::sleep(FULL_PAUSE);
            self.look_round()?;
        }
    }

    fn must_end(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What must be done however little comes.
    fn look_round(&mut self) -> Result<(), End> {
        if self.must_end() {
            return Err(End::Stopped);
        }
        if self.shown_at.is_none_or(|at| at.elapsed() >= SHOW_EVERY) {
            self.show();
        }
        Ok(())
    }

    /// Sets the gauges, and tells of a trouble that stays.
    fn show(&mut self) {
        let stale = |trouble: &&mut Trouble| trouble.since.elapsed() >= STALE_AFTER;
        let (depth, age_seconds) = match self.trouble.as_mut().filter(stale) {
            Some(trouble) => {
                if !std::mem::replace(&mut trouble.warned, true) {
                    let error = in_one_line(&trouble.fault);
                    tracing::warn!(error, "the dead-letter topic can no longer be read");
                }
                (f64::NAN, f64::NAN)
            }
            None => {
                let Some((depth, oldest)) = self.follower.open() else { return };
                if self.follower.only_counts() && !std::mem::replace(&mut self.told_beyond, true) {
                    tracing::warn!(
                        open = depth,
                        "more dead letters are open than are told apart: further ones are counted, twice where they are written twice"
                    );
                }
                let age_us = oldest.map_or(0, |at| unix_now_us().saturating_sub(at).max(0));
                (depth as f64, age_us as f64 / 1e6)
            }
        };
        self.follow.metrics.dlq_depth.set(depth);
        self.follow.metrics.dlq_oldest_age_seconds.set(age_seconds);
        self.shown_at = Some(Instant::now());
    }

    /// The topic can be read.
    fn mended(&mut self) {
        if self.trouble.take().is_some_and(|trouble| trouble.warned) {
            tracing::info!("the dead-letter topic is read again");
        }
    }

    /// Waits for the next reading.
    fn suffer(&mut self, fault: Fault) -> Result<(), End> {
        let away = AWAY.contains(&fault.code);
        let trouble = self.trouble.get_or_insert_with(|| Trouble {
            since: Instant::now(),
            warned: false,
            fault: fault.clone(),
        });
        trouble.fault = fault;
        if !away && !self.told && !self.follower.caught_up() {
            self.told = true;
            trouble.warned = true;
            let reason = in_one_line(&trouble.fault);
            self.tell(TailEvent::Unreadable(reason))?;
        }
        let until = Instant::now() + self.backoff.next_delay();
        while Instant::now() < until {
            std::thread::sleep(TICK);
            // The fold still holds what was read last.
            self.look_round()?;
        }
        Ok(())
    }
}

fn news(finding: Finding) -> TailEvent {
    match finding {
        Finding::Parked(key, position) => TailEvent::Parked(key, position),
        Finding::Released(key) => TailEvent::Released(key),
        Finding::Letter { failed_unix_us, class } => TailEvent::Letter { failed_unix_us, class },
    }
}

fn in_one_line(fault: &Fault) -> String {
    format!("{} ({}); to mend it: {}", fault.what, fault.place, fault.mend)
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;

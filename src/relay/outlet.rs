//! The sink as a loop has it: listened to, broken, and built anew.
//!
//! What an answer means for the event is the loop's own business ([`Settling`]); what it means for
//! the sink is decided here.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::SinkFactory;
use super::weather::Weather;
use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::dead_letter::tail_event::{self, TailEvent};
use crate::delivery::settings::DeliverySettings;
use crate::health::Recorder;
use crate::relay::failure_policy::{Fate, Moment, Undertaker};
use crate::sink::{Failure, News, Sink};

/// A new sink is never built in circles.
const REBUILD_WAIT_MIN: Duration = Duration::from_millis(100);

/// Who has handed the events over.
pub(super) trait Settling {
    /// The sink has confirmed an event; true when it was its letter.
    fn confirmed(&mut self, sequence: Sequence, now_unix_us: i64) -> Result<bool, Fault>;

    /// The sink could not publish an event that it keeps, or its letter.
    fn failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<Fate, Fault>;

    /// An event that may be tried again now.
    fn take_due(&mut self, now: Instant) -> Option<Sequence>;

    /// Who decides about failures.
    fn undertaker(&mut self) -> &mut Undertaker;

    /// Events that were handed over and are not settled.
    fn in_flight(&self) -> usize;
}

/// The sink, and how it stands with it.
pub(super) struct Outlet {
    /// None after one has broken, until the next is built.
    pub(super) sink: Option<Box<dyn Sink>>,
    factory: SinkFactory,
    due_at: Instant,
    backoff: Backoff,
    pub(super) weather: Weather,
    news: Vec<News>,
    log_news: Receiver<TailEvent>,
    /// Events that were confirmed, themselves or their letters.
    pub(super) settled_events: u64,
}

impl Outlet {
    /// With a fresh sink.
    pub(super) fn open(
        mut factory: SinkFactory,
        log_news: Receiver<TailEvent>,
        delivery: &DeliverySettings,
    ) -> Result<Outlet, Fault> {
        Ok(Outlet {
            sink: Some(factory()?),
            factory,
            due_at: Instant::now(),
            backoff: Backoff::new(delivery.backoff_base, delivery.backoff_cap),
            weather: Weather::default(),
            news: Vec::new(),
            log_news,
            settled_events: 0,
        })
    }

    /// Takes in what the sink has to tell.
    pub(super) fn collect(
        &mut self,
        patience: Duration,
        core: &mut impl Settling,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        // What waited behind an event that has parked its key is given up before a later event of
        // the key can come in: they stay in order.
        let mut parked = self.collect_once(patience, core, recorder)?;
        while parked {
            parked = self.collect_once(Duration::ZERO, core, recorder)?;
        }
        Ok(())
    }

    /// True when a key was parked.
    fn collect_once(
        &mut self,
        patience: Duration,
        core: &mut impl Settling,
        recorder: &mut Recorder,
    ) -> Result<bool, Fault> {
        let weather = &mut self.weather;
        let Some(sink) = &mut self.sink else {
            std::thread::sleep(patience);
            return Ok(false);
        };
        let mut news = std::mem::take(&mut self.news);
        sink.poll(patience, &mut news);
        if news.is_empty() {
            self.news = news;
            weather.tell();
            return Ok(false);
        }
        let now = Moment::now();
        let (mut outcome, mut broken, mut confirmed, mut parked) = (Ok(()), None, false, false);
        for item in news.drain(..) {
            match item {
                News::Confirmed(sequence) => {
                    self.settled_events += 1;
                    confirmed = true;
                    match core.confirmed(sequence, now.unix_us) {
                        Ok(false) => {}
                        Ok(true) => weather.letter_went(recorder),
                        Err(fault) => outcome = outcome.and(Err(fault)),
                    }
                }
                News::Failed(sequence, failure) => {
                    match core.failed(sequence, failure, &mut **sink, now) {
                        Ok(Fate::Decided | Fate::Waits { .. }) => {}
                        Ok(Fate::KeyParked) => parked = true,
                        Ok(Fate::LetterWaits(reason)) => weather.letters_wait(&reason, recorder),
                        Ok(Fate::Outage(reason)) => broken = Some(reason),
                        Err(fault) => outcome = outcome.and(Err(fault)),
                    }
                }
                News::Suspect(sequence) => core.undertaker().suspect(sequence),
                News::Reachable => {
                    tracing::info!("the broker answers again");
                    weather.clears(recorder);
                }
                News::Unreachable(reason) => weather.worsens(reason, recorder),
                News::Broken(reason) => broken = Some(reason),
                News::Unable(failure) => {
                    outcome = outcome.and(Err(core.undertaker().unable(&failure)))
                }
            }
        }
        if confirmed {
            self.backoff.succeeded();
        }
        weather.tell();
        self.news = news;
        // An event that will never pass is told first: a new sink would only meet it again.
        if let Some(reason) = broken
            && outcome.is_ok()
        {
            self.break_sink(&reason, core.in_flight());
        }
        outcome.map(|()| parked)
    }

    /// Takes in what the dead-letter topic has to tell.
    pub(super) fn hear(&mut self, undertaker: &mut Undertaker) -> Result<(), Fault> {
        for news in tail_event::waiting(&self.log_news) {
            undertaker.hear(news, self.sink.as_mut(), Moment::now())?;
        }
        Ok(())
    }

    /// Publishes again what has waited long enough.
    pub(super) fn retry_due(&mut self, now: Instant, core: &mut impl Settling) {
        let Some(sink) = &mut self.sink else { return };
        while let Some(sequence) = core.take_due(now) {
            sink.retry(sequence);
        }
    }

    /// Nothing more will be heard of what is in flight: a new sink will publish again what is not
    /// confirmed. The old one ends at once, or it would go on with later events of a key.
    pub(super) fn break_sink(&mut self, reason: &str, in_flight: usize) {
        if self.sink.take().is_none() {
            return;
        }
        let delay = self.backoff.next_delay().max(REBUILD_WAIT_MIN);
        self.due_at = Instant::now() + delay;
        self.weather.breaks();
        tracing::warn!(
            error = reason,
            in_flight,
            retry_in_ms = delay.as_millis() as u64,
            "the sink lost track of what is in flight: building a new one"
        );
    }

    /// Builds the next sink when it is time. True when there is a new one: everything that is not
    /// settled must be handed over again.
    pub(super) fn rebuild(&mut self, now: Instant, recorder: &mut Recorder) -> Result<bool, Fault> {
        if self.sink.is_some() || now < self.due_at {
            return Ok(false);
        }
        self.sink = Some((self.factory)()?);
        self.weather.clears(recorder);
        Ok(true)
    }
}

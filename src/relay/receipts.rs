//! What the sink has to tell, and what follows from it.

use std::time::{Duration, Instant};

use super::undertaker::{Fate, Moment};
use super::{Relay, log_news};
use crate::error::Fault;
use crate::sink::News;

impl Relay {
    /// Takes in what the sink has to tell.
    pub(super) fn collect(&mut self, patience: Duration) -> Result<(), Fault> {
        // What waited behind an event that has parked its key is given up before a later event of
        // the key can come in: they stay in order.
        let mut parked = self.collect_once(patience)?;
        while parked {
            parked = self.collect_once(Duration::ZERO)?;
        }
        Ok(())
    }

    /// True when a key was parked.
    fn collect_once(&mut self, patience: Duration) -> Result<bool, Fault> {
        let Relay { core, weather, recorder, .. } = self;
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
                        Ok(Fate::Decided) => {}
                        Ok(Fate::KeyParked) => parked = true,
                        Ok(Fate::LetterWaits(reason)) => weather.letters_wait(&reason, recorder),
                        Ok(Fate::Outage(reason)) => broken = Some(reason),
                        Err(fault) => outcome = outcome.and(Err(fault)),
                    }
                }
                News::Suspect(sequence) => core.undertaker.suspect(sequence),
                News::Reachable => {
                    tracing::info!("the broker answers again");
                    weather.clears(recorder);
                }
                News::Unreachable(reason) => weather.worsens(reason, recorder),
                News::Broken(reason) => broken = Some(reason),
                News::Unable(failure) => {
                    outcome = outcome.and(Err(core.undertaker.unable(&failure)))
                }
            }
        }
        if confirmed {
            self.sink_backoff.succeeded();
        }
        weather.tell();
        self.news = news;
        // An event that will never pass is told first: a new sink would only meet it again.
        if let Some(reason) = broken
            && outcome.is_ok()
        {
            self.break_sink(&reason);
        }
        outcome.map(|()| parked)
    }

    /// Takes in what the dead-letter topic has to tell.
    pub(super) fn hear(&mut self) -> Result<(), Fault> {
        for news in log_news::waiting(&self.log_news) {
            let sink = self.sink.as_mut();
            self.core.undertaker.hear(news, sink, Moment::now())?;
        }
        Ok(())
    }

    /// Publishes again what has waited long enough.
    pub(super) fn retry_due(&mut self, now: Instant) {
        let Some(sink) = &mut self.sink else { return };
        while let Some(sequence) = self.core.take_due(now) {
            sink.retry(sequence);
        }
    }
}

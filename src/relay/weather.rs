//! Whether the broker takes what it is given, and how often the contrary is told.

use std::time::{Duration, Instant};

use crate::health::Recorder;

/// An outage whose reason changes is told of no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How it stands with the broker.
#[derive(Debug)]
pub(super) struct Weather {
    fair: bool,
    /// Why events wait.
    trouble: Option<String>,
    /// What was last told of it, and when.
    told: Option<(Instant, String)>,
    /// The trouble is with the dead-letter topic alone: a letter that is confirmed ends it.
    letters_only: bool,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather { fair: true, trouble: None, told: None, letters_only: false }
    }
}

impl Weather {
    /// Does the broker take what it is given?
    pub(super) fn is_fair(&self) -> bool {
        self.fair
    }

    /// Why events wait; empty when they do not.
    pub(super) fn trouble(&self) -> &str {
        self.trouble.as_deref().unwrap_or_default()
    }

    /// The sink has broken, and has said why.
    pub(super) fn breaks(&mut self) {
        self.fair = false;
    }

    /// Events wait for the broker.
    pub(super) fn worsens(&mut self, reason: String, recorder: &mut Recorder) {
        recorder.note(&reason);
        (self.fair, self.trouble, self.letters_only) = (false, Some(reason), false);
    }

    /// Letters wait for the dead-letter topic.
    pub(super) fn letters_wait(&mut self, reason: &str, recorder: &mut Recorder) {
        self.worsens(format!("a dead letter cannot be written: {reason}"), recorder);
        self.letters_only = true;
    }

    /// A letter was written.
    pub(super) fn letter_went(&mut self, recorder: &mut Recorder) {
        if self.letters_only {
            self.clears(recorder);
        }
    }

    /// Nothing is said of a trouble that is over, and the same is told anew when it comes again.
    pub(super) fn clears(&mut self, recorder: &mut Recorder) {
        *self = Weather::default();
        recorder.note("");
    }

    /// Tells why events wait: at once, and again when the reason has changed, but not too often.
    pub(super) fn tell(&mut self) {
        let Some(reason) = &self.trouble else { return };
        let told = self.told.as_ref();
        let quiet = told.is_some_and(|(at, text)| text == reason || at.elapsed() < TELL_EVERY);
        if !quiet {
            tracing::warn!(error = reason, "events wait for the broker");
            self.told = Some((Instant::now(), reason.clone()));
        }
    }
}

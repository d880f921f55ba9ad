//! Which exchanges there are, as far as one connection has asked.
//!
//! A publish to an exchange that is not there closes the channel, and everything in flight with it
//! would have to be sent again. So each exchange is asked for before its first event, one question
//! at a time, while confirms go on being collected.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::connection::Link;
use super::fault::Loss;
use crate::sink::rabbitmq::probe;

/// Exchanges that are remembered; a template can name any number.
const REMEMBERED_MAX: usize = 1024;
/// How long an exchange counts as absent for further events.
const ABSENT_FOR: Duration = Duration::from_secs(1);

type Question = Pin<Box<dyn Future<Output = (String, Result<bool, Loss>)> + Send>>;

/// What is known of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Absent,
    /// It has been asked for, or will be once another question is answered.
    Asked,
}

/// What this connection knows.
#[derive(Default)]
pub(super) struct Exchanges {
    there: BTreeSet<String>,
    absent: BTreeMap<String, Instant>,
    question: Option<Question>,
    asked_at: Option<Instant>,
}

impl Exchanges {
    /// Since when a question has no answer.
    pub(super) fn asked_at(&self) -> Option<Instant> {
        self.asked_at
    }

    /// Is it there? Asks when that is not known.
    pub(super) fn presence(&mut self, link: &Link, name: &str) -> Presence {
        // The default exchange is always there, and may not be asked for.
        if name.is_empty() || self.there.contains(name) {
            return Presence::There;
        }
        if self.absent.get(name).is_some_and(|since| since.elapsed() < ABSENT_FOR) {
            return Presence::Absent;
        }
        if self.question.is_none() {
            let (link, name) = (link.clone(), name.to_owned());
            self.asked_at = Some(Instant::now());
            self.question = Some(Box::pin(async move {
                let answer = probe::exchange_exists(&link, &name).await;
                (name, answer)
            }));
        }
        Presence::Asked
    }

    /// An event that was refused for want of it is tried again.
    pub(super) fn ask_again(&mut self, name: &str) {
        self.absent.remove(name);
    }

    /// When the question is answered; never when there is none.
    pub(super) async fn answered(&mut self) -> Result<(), Loss> {
        let Some(question) = &mut self.question else { return std::future::pending().await };
        let (name, answer) = question.await;
        (self.question, self.asked_at) = (None, None);
        if self.there.len() + self.absent.len() >= REMEMBERED_MAX {
            self.there.clear();
            self.absent.clear();
        }
        self.absent.remove(&name);
        if answer? {
            self.there.insert(name);
        } else {
            self.absent.insert(name, Instant::now());
        }
        Ok(())
    }
}

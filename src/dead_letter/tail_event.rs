//! What the reader of the dead-letter topic tells the loop.
//!
//! The topic is the memory of the relay: which keys are parked, and how many letters an earlier
//! process has just written. It is read on a thread of its own ([`crate::app`]), from the beginning
//! as far as it matters, and followed.

use std::sync::mpsc::{self, Receiver, TryRecvError};

use crate::base::event::Position;
use crate::dead_letter::writer::KeyHash;

/// What was read, in the order of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailEvent {
    /// A letter of this slot that parks this key, and where its event stood; told for each.
    Parked(KeyHash, Position),
    /// A release of this key.
    Released(KeyHash),
    /// Any letter of this slot of before this process that may still count for the breaker; not one of class
    /// [`crate::dead_letter::writer::CLASS_PARKED`], which follows from another. Not told after
    /// [`TailEvent::CaughtUp`].
    Letter {
        /// When it was given up, in microseconds since the Unix epoch.
        failed_unix_us: i64,
        /// Its class.
        class: String,
    },
    /// Everything of before this process that the loop must know has been told; said once.
    CaughtUp,
    /// The topic cannot be read; why.
    Unreadable(String),
}

/// Most news that one pass of the loop takes in.
const AT_ONCE: usize = 256;
/// As many may wait for the loop: the reader then waits for it.
const WAITING_MAX: usize = 1024;

/// A channel of the right size.
#[must_use]
pub fn channel() -> (mpsc::SyncSender<TailEvent>, Receiver<TailEvent>) {
    mpsc::sync_channel(WAITING_MAX)
}

/// What has come since the last pass. A reader that is gone has nothing to tell any more.
pub(crate) fn waiting(news: &Receiver<TailEvent>) -> impl Iterator<Item = TailEvent> {
    let mut gone = false;
    let next = move || match news.try_recv() {
        Ok(item) => Some(item),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => {
            let first = !std::mem::replace(&mut gone, true);
            first.then(|| TailEvent::Unreadable("its reader has ended".to_owned()))
        }
    };
    std::iter::from_fn(next).take(AT_ONCE)
}

//! A log whose lines a test can read.

#![allow(clippy::unwrap_used, reason = "tests use it, and nothing else")]

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, Once};

use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

use super::queue::{LogQueue, QueueEntry};
use super::{Log, Style};

pub const TEXT: Style = Style::Text { coloured: false };

/// A log of a service, and what it leaves for its thread.
pub(super) fn log(style: Style) -> (&'static Log, Receiver<QueueEntry>) {
    let (queue, waiting) = LogQueue::new();
    (Box::leak(Box::new(Log { style, repeats: Mutex::default(), queue: Some(queue) })), waiting)
}

/// Returns the lines that are written by this filter while `work` runs.
pub fn written(filter: Targets, style: Style, work: impl FnOnce()) -> String {
    written_with(filter, style, |_| work())
}

/// Whether a place in the code logs is decided once for all threads. With a subscriber that wants everything
/// it always does; a test whose thread has none would decide for the others that it does not.
static WANTS_EVERYTHING: Once = Once::new();

/// The same for work that uses the log itself.
pub(super) fn written_with(filter: Targets, style: Style, work: impl FnOnce(&Log)) -> String {
    WANTS_EVERYTHING.call_once(|| {
        tracing::subscriber::set_global_default(Registry::default()).ok();
    });
    let (log, waiting) = log(style);
    let subscriber = Registry::default().with(filter).with(log);
    tracing::subscriber::with_default(subscriber, || work(log));
    let lines = waiting.try_iter().map(|entry| match entry {
        QueueEntry::Line(line) => String::from_utf8(line).unwrap(),
        QueueEntry::Mark(_) => String::new(),
    });
    lines.collect()
}

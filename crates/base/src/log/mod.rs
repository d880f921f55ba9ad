//! The log: each event of `tracing` is a line on standard error.
//!
//! Lines of one kind are limited (see `repeats`). A service never waits for whoever reads its log (see
//! `queue`); other commands do.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use self::line::Line;
pub use self::line::{AUDIT, Style};
use self::queue::LogQueue;
use self::repeats::Repeats;
use super::error::Fault;
use super::lock::locked;
use super::runtime;

mod line;
mod queue;
mod repeats;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// Target of findings: each names another thing, and whoever writes them repeats none.
pub const FINDINGS: &str = "walrelay::findings";
/// Target of changes of state: they come once a second at most, and the last one counts.
pub const STATES: &str = "walrelay::health::state_watch";
/// The AMQP client logs whole messages that the broker returns, and payloads must not be logged. A
/// filter alone would not do: one of its modules by name would go before it.
const NEVER_LOGGED: &str = "lapin";

static LOG: OnceLock<Log> = OnceLock::new();

/// The log of a process: a layer that writes events as lines, those of one kind only so often.
pub struct Log {
    style: Style,
    repeats: Mutex<Repeats>,
    /// None in commands that people type: their lines go to standard error directly.
    queue: Option<LogQueue>,
}

/// Starts the log of the process; that of a service is written by a thread.
pub fn start(style: Style, is_service: bool) -> Result<&'static Log, Fault> {
    let (queue, waiting) = LogQueue::new();
    // A second command line in one process (a test) keeps the first log.
    if is_service && LOG.get().is_none() {
        let write = move || {
            let log = LOG.wait();
            let idle = || log.write_counts(Instant::now(), false);
            if let Some(queue) = &log.queue {
                queue.write_all(&waiting, io::stderr(), |lines| style.lost(lines), idle);
            }
        };
        // First the thread: the fault that it cannot be started must not wait in the queue.
        runtime::spawn("log", write)?;
    }
    let queue = is_service.then_some(queue);
    Ok(LOG.get_or_init(|| Log { style, repeats: Mutex::default(), queue }))
}

/// Writes how many lines the limit has kept back. To be called before the process ends.
pub fn write_last_counts() {
    if let Some(log) = LOG.get() {
        log.write_counts(Instant::now(), true);
    }
}

/// Waits until the queued lines are written, for a second at most: nobody may read them.
pub fn flush() {
    if let Some(queue) = LOG.get().and_then(|log| log.queue.as_ref()) {
        queue.flush();
    }
}

/// The stream of log lines, for texts that are no tracing events. Each write is a line.
pub struct LogStream;

impl Write for LogStream {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = LOG.get().map_or_else(|| io::stderr().write_all(line), |log| log.write(line));
        written.map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let Some(queue) = &self.queue else { return io::stderr().write_all(line) };
        queue.push(line);
        Ok(())
    }

    /// Writes a line. A stream that is closed is ignored.
    fn write_line(&self, line: &str) {
        self.write(line.as_bytes()).ok();
    }

    /// Writes how many lines were not written in periods that are over; with `all` in the others as well.
    fn write_counts(&self, now: Instant, all: bool) {
        let counts = locked(&self.repeats).take_counts(now, all);
        counts.iter().for_each(|line| self.write_line(&line.text()));
    }

    fn is_permitted(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        if !is_limited(metadata) {
            return true;
        }
        let kind = (metadata.name(), Line::codes_of(self.style, event));
        locked(&self.repeats).permit(kind, now, || Line::sample_of(self.style, event))
    }
}

/// Whether a line is limited. A level below `info` was asked for, so its lines are all written, and so are
/// changes of state, findings, and audit lines of what was done, but not those of a token that was refused.
fn is_limited(metadata: &Metadata<'_>) -> bool {
    let (level, target) = (*metadata.level(), metadata.target());
    let is_whole =
        [STATES, FINDINGS].contains(&target) || (target == AUDIT && level == Level::INFO);
    level <= Level::INFO && !is_whole
}

impl<S: Subscriber> Layer<S> for &'static Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().split("::").next() == Some(NEVER_LOGGED) {
            return;
        }
        let now = Instant::now();
        self.write_counts(now, false);
        if self.is_permitted(event, now) {
            self.write_line(&Line::text_of(self.style, event));
        }
    }
}

#[cfg(test)]
mod tests;

//! Lines of a service's log on their way to standard error, which may be a pipe that nobody reads.
//!
//! Whoever writes to a full pipe waits, and nothing of a relay may: neither probes nor signals nor the
//! loop. So one thread writes, and the others leave their lines in a queue. They wait for a moment
//! until their line is written, which keeps the log in step with the process while somebody reads
//! it. Once a line was not taken within that moment, nobody waits until the queue is empty again.
//! Lines for which the queue has no room are lost and counted; audit lines and changes of state have
//! half of it for themselves.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::error::Fault;
use super::runtime;

/// Bytes of lines that wait.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// How long whoever has written a line waits for it.
const LINE_WAIT: Duration = Duration::from_millis(100);
/// How long the end of the process waits for the lines that are left.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Without one, as in commands that people type, lines go to standard error directly.
static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();

thread_local! {
    /// Has this thread lost a line?
    static HAS_LOST: Cell<bool> = const { Cell::new(false) };
}

/// Starts the thread that writes to standard error. `lost_line` is the line that tells how many lines
/// were lost.
pub(crate) fn start(lost_line: impl Fn(u64) -> String + Send + 'static) -> Result<(), Fault> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let queue = Arc::new(LogQueue::default());
    let own = Arc::clone(&queue);
    // First the thread: the fault that it cannot be started must not wait in the queue.
    runtime::spawn("log", move || own.write_all(std::io::stderr(), lost_line))?;
    let _another = QUEUE.set(queue).is_err();
    Ok(())
}

/// Waits for the lines that are left, though not for a reader that does not come.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_WITHIN);
    }
}

/// Does the log take what `write` writes to it? What it does not take is lost.
pub(crate) fn takes(write: impl FnOnce()) -> bool {
    HAS_LOST.set(false);
    write();
    !HAS_LOST.get()
}

/// Standard error, by way of the queue where there is one. Each write is a line.
pub(crate) struct LogStream {
    pub(crate) rank: LineRank,
}

/// Which lines are lost first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineRank {
    Ordinary,
    /// May fill the whole queue.
    Kept,
}

impl Write for LogStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(queue) = QUEUE.get() else { return io::stderr().write(bytes) };
        if !queue.push(bytes, self.rank) {
            HAS_LOST.set(true);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct LogQueue {
    waiting: Mutex<WaitingLines>,
    has_come: Condvar,
    is_written: Condvar,
}

#[derive(Default)]
struct WaitingLines {
    /// The first one is being written.
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    pushed: u64,
    written: u64,
    lost: u64,
    /// A line was not taken in time, so nobody waits.
    is_stuck: bool,
}

impl LogQueue {
    fn locked(&self) -> MutexGuard<'_, WaitingLines> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the line is lost.
    fn push(&self, line: &[u8], rank: LineRank) -> bool {
        let bytes_max = match rank {
            LineRank::Ordinary => WAITING_BYTES_MAX / 2,
            LineRank::Kept => WAITING_BYTES_MAX,
        };
        let mut waiting = self.locked();
        // However long a line is, it has its place in an empty queue.
        if waiting.bytes > 0 && waiting.bytes + line.len() > bytes_max {
            waiting.lost += 1;
            return false;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_owned());
        waiting.pushed += 1;
        let own = waiting.pushed;
        self.has_come.notify_one();
        let is_left = |waiting: &mut WaitingLines| waiting.written < own && !waiting.is_stuck;
        let waited = self.is_written.wait_timeout_while(waiting, LINE_WAIT, is_left);
        let (mut waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.is_stuck |= timeout.timed_out();
        true
    }

    /// Writes lines to `out` as they come. A stream that is closed is ignored.
    fn write_all(&self, mut out: impl Write, lost_line: impl Fn(u64) -> String) {
        loop {
            let idle = |waiting: &mut WaitingLines| waiting.lines.is_empty();
            let waiting = self.has_come.wait_while(self.locked(), idle);
            let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            let line = waiting.lines.front().cloned().unwrap_or_default();
            drop(waiting);
            out.write_all(&line).ok();
            let mut waiting = self.locked();
            waiting.lines.pop_front();
            waiting.bytes -= line.len();
            waiting.written += 1;
            if waiting.lines.is_empty() {
                waiting.is_stuck = false;
                if waiting.lost > 0 {
                    let line = lost_line(std::mem::take(&mut waiting.lost)).into_bytes();
                    waiting.bytes += line.len();
                    waiting.lines.push_back(line);
                    waiting.pushed += 1;
                }
            }
            drop(waiting);
            self.is_written.notify_all();
        }
    }

    fn flush(&self, within: Duration) {
        let is_left = |waiting: &mut WaitingLines| !waiting.lines.is_empty();
        let waited = self.is_written.wait_timeout_while(self.locked(), within, is_left);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
#[path = "log_queue_tests.rs"]
mod tests;

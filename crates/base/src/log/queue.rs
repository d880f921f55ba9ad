//! Lines of a service's log on their way to standard error, which may be a pipe that nobody reads.
//!
//! A thread that writes to a full pipe waits, and none of a relay may: neither probes nor signals nor the
//! loop. So one thread writes, and the others leave their lines in a channel. Lines for which it has no
//! room are lost and counted.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that may wait, of 16 KiB each at most.
pub(super) const WAITING_LINES_MAX: usize = 1024;
/// How long the end of the process waits for the lines that are left.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);
/// Pause before a full channel is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct LogQueue {
    entries: SyncSender<QueueEntry>,
    lost: AtomicU64,
}

pub(super) enum QueueEntry {
    Line(Vec<u8>),
    /// A mark is answered when all lines before it are written.
    Mark(SyncSender<()>),
}

impl LogQueue {
    pub(super) fn new() -> (LogQueue, Receiver<QueueEntry>) {
        let (entries, waiting) = sync_channel(WAITING_LINES_MAX);
        (LogQueue { entries, lost: AtomicU64::new(0) }, waiting)
    }

    /// Leaves a line for the thread that writes, and never waits.
    pub(super) fn push(&self, line: &[u8]) {
        if self.entries.try_send(QueueEntry::Line(line.to_owned())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the queued lines are written, for [`FLUSH_WITHIN`] at most: nobody may read them.
    pub(super) fn flush(&self) {
        let until = Instant::now() + FLUSH_WITHIN;
        let (done, is_done) = sync_channel(1);
        while self.entries.try_send(QueueEntry::Mark(done.clone())).is_err()
            && Instant::now() < until
        {
            std::thread::sleep(FULL_PAUSE);
        }
        is_done.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    }

    /// Writes lines to `out` as they come, and the number of those that were lost when no more are there.
    /// Calls `idle` when none has come for a second. A stream that is closed is ignored.
    pub(super) fn write_all(
        &self,
        waiting: &Receiver<QueueEntry>,
        mut out: impl Write,
        lost_line: impl Fn(u64) -> String,
        idle: impl Fn(),
    ) {
        let write_lost = |out: &mut dyn Write| match self.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => drop(out.write_all(lost_line(lost).as_bytes())),
        };
        loop {
            let entry = waiting.try_recv().or_else(|_| {
                write_lost(&mut out);
                waiting.recv_timeout(Duration::from_secs(1))
            });
            match entry {
                Ok(QueueEntry::Line(line)) => drop(out.write_all(&line)),
                Ok(QueueEntry::Mark(done)) => {
                    write_lost(&mut out);
                    done.send(()).ok();
                }
                Err(RecvTimeoutError::Timeout) => idle(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;

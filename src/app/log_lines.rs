//! Lines of the log that the main thread writes for the admin thread, which must not: a log that
//! nobody reads stops whoever writes to it, and probes are answered all the same.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::base::log;
use crate::health::StateLine;

/// How often the counts of lines that were not written are due.
const COUNTS_EVERY: Duration = Duration::from_secs(1);
/// Lines that wait while the log takes none; later ones are lost.
const LINES_MAX: usize = 256;

/// Dropped after the admin server, so that it writes the server's last line.
pub(super) struct LogLines {
    lines: mpsc::Receiver<StateLine>,
}

pub(super) fn log_lines() -> (impl Fn(StateLine) + Send + Sync + 'static, LogLines) {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    let take_line = move |line| {
        let _there_was_room = sender.try_send(line).is_ok();
    };
    (take_line, LogLines { lines })
}

impl LogLines {
    /// Writes the next line, or what is due after a second without one. May be cancelled.
    pub(super) async fn write_next(&mut self) {
        match timeout(COUNTS_EVERY, self.lines.recv()).await {
            Ok(Some(line)) => line.write(),
            Ok(None) => std::future::pending().await,
            Err(_) => log::write_due_counts(),
        }
    }
}

impl Drop for LogLines {
    fn drop(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            line.write();
        }
    }
}

//! How far something long has come, on standard error: one line that is redrawn on a terminal,
//! a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::output::{no_color_is_unset, tell};
use crate::base::text::escaped;

const REDRAWN_EVERY: Duration = Duration::from_millis(100);
const BAR_CHARS: usize = 24;

/// The line on standard error that says how it stands.
pub(super) struct StatusLine {
    terminal: bool,
    coloured: bool,
    /// Where there is no terminal.
    written_every: Duration,
    shown: Instant,
    drawn: bool,
}

impl StatusLine {
    pub(super) fn new(written_every: Duration) -> StatusLine {
        let terminal = std::io::stderr().is_terminal();
        let coloured = terminal && no_color_is_unset();
        StatusLine { terminal, coloured, written_every, shown: Instant::now(), drawn: false }
    }

    /// Is it time to show another?
    pub(super) fn is_due(&self) -> bool {
        let every = if self.terminal { REDRAWN_EVERY } else { self.written_every };
        self.shown.elapsed() >= every
    }

    /// Shows a text, on a terminal behind a mark of its own and in the place of the last.
    pub(super) fn show(&mut self, mark: &str, text: &str) {
        self.shown = Instant::now();
        if !self.terminal {
            return tell(text);
        }
        self.drawn = true;
        put(&format!("\r{} {}\x1b[K", self.colored(mark), escaped(text)));
    }

    /// Writes a text that stays.
    pub(super) fn keep(&mut self, mark: &str, text: &str) {
        self.erase();
        self.shown = Instant::now();
        put(&format!("{} {}\n", self.colored(mark), escaped(text)));
    }

    /// Takes the line away again.
    pub(super) fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            put("\r\x1b[K");
        }
    }

    fn colored(&self, mark: &str) -> String {
        if self.coloured { format!("\x1b[36m{mark}\x1b[0m") } else { mark.to_owned() }
    }
}

fn put(text: &str) {
    let mut errors = std::io::stderr();
    // A terminal that has gone shows nothing more.
    errors.write_all(text.as_bytes()).and_then(|()| errors.flush()).ok();
}

/// How many of how many are done, how fast, and how long it will take.
pub(super) struct JobProgress {
    what: &'static str,
    began: Instant,
    line: StatusLine,
}

impl JobProgress {
    /// `what` is being done, as in `replayed`.
    pub(super) fn new(what: &'static str) -> JobProgress {
        let line = StatusLine::new(Duration::from_secs(5));
        JobProgress { what, began: Instant::now(), line }
    }

    /// So many of so many are done.
    pub(super) fn tell(&mut self, done: usize, total: usize) {
        if total > 0 && self.line.is_due() {
            let text = line(self.what, done, total, self.began.elapsed());
            self.line.show(&bar(done, total), &text);
        }
    }

    /// Takes the line away again.
    pub(super) fn end(&mut self) {
        self.line.erase();
    }
}

fn bar(done: usize, total: usize) -> String {
    let filled = (done * BAR_CHARS / total.max(1)).min(BAR_CHARS);
    format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR_CHARS - filled))
}

fn line(what: &str, done: usize, total: usize, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = match done {
        0 => String::new(),
        _ => format!(", {} left", clock((total.saturating_sub(done)) as f64 / rate)),
    };
    let digits = usize::from(rate < 3.0 && done > 0);
    format!("{what} {done} of {total}, {rate:.digits$}/s{left}")
}

/// Seconds as people count them.
fn clock(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;

//! The progress of long work, on standard error: one line that is redrawn on a terminal, a line
//! every few seconds elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use super::output::{is_coloured, print_note, put};
use crate::base::text::escaped;

const REDRAWN_EVERY: Duration = Duration::from_millis(100);
const BAR_CHARS: usize = 24;

pub(super) struct StatusLine {
    is_terminal: bool,
    is_coloured: bool,
    /// Where there is no terminal.
    written_every: Duration,
    shown_at: Instant,
    is_drawn: bool,
}

impl StatusLine {
    pub(super) fn new(written_every: Duration) -> StatusLine {
        let errors = std::io::stderr();
        let (is_terminal, is_coloured) = (errors.is_terminal(), is_coloured(&errors));
        let shown_at = Instant::now();
        StatusLine { is_terminal, is_coloured, written_every, shown_at, is_drawn: false }
    }

    /// Is it time to show the next text?
    pub(super) fn is_due(&self) -> bool {
        let every = if self.is_terminal { REDRAWN_EVERY } else { self.written_every };
        self.shown_at.elapsed() >= every
    }

    /// Shows a text; on a terminal it follows a mark and replaces the last text.
    pub(super) fn show(&mut self, mark: &str, text: &str) {
        self.shown_at = Instant::now();
        if !self.is_terminal {
            return print_note(text);
        }
        self.is_drawn = true;
        put(&mut std::io::stderr(), &format!("\r{} {}\x1b[K", self.coloured(mark), escaped(text)));
    }

    /// Writes a text that stays.
    #[cfg(feature = "compare")]
    pub(super) fn keep(&mut self, mark: &str, text: &str) {
        self.erase();
        self.shown_at = Instant::now();
        put(&mut std::io::stderr(), &format!("{} {}\n", self.coloured(mark), escaped(text)));
    }

    pub(super) fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            put(&mut std::io::stderr(), "\r\x1b[K");
        }
    }

    fn coloured(&self, mark: &str) -> String {
        if self.is_coloured { format!("\x1b[36m{mark}\x1b[0m") } else { mark.to_owned() }
    }
}

/// How many of how many are done, how fast, and how long the rest will take.
pub(super) struct JobProgress {
    verb: &'static str,
    began: Instant,
    line: StatusLine,
}

impl JobProgress {
    /// `verb` is in the past tense, as in `replayed`.
    pub(super) fn new(verb: &'static str) -> JobProgress {
        let line = StatusLine::new(Duration::from_secs(5));
        JobProgress { verb, began: Instant::now(), line }
    }

    pub(super) fn update(&mut self, done: usize, total: usize) {
        if total > 0 && self.line.is_due() {
            let text = line(self.verb, done, total, self.began.elapsed());
            self.line.show(&bar(done, total), &text);
        }
    }

    pub(super) fn end(&mut self) {
        self.line.erase();
    }
}

fn bar(done: usize, total: usize) -> String {
    let filled = (done * BAR_CHARS / total.max(1)).min(BAR_CHARS);
    format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR_CHARS - filled))
}

fn line(verb: &str, done: usize, total: usize, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = match done {
        0 => String::new(),
        _ => format!(", {} left", clock((total.saturating_sub(done)) as f64 / rate)),
    };
    let digits = usize::from(rate < 3.0 && done > 0);
    format!("{verb} {done} of {total}, {rate:.digits$}/s{left}")
}

/// As in `3 min 10 s`.
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

//! How far something long has come, on standard error: one line that is redrawn on a terminal,
//! a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const REDRAWN_EVERY: Duration = Duration::from_millis(100);
const TOLD_EVERY: Duration = Duration::from_secs(5);
const BAR_CHARS: usize = 24;

/// Tells how far it is.
pub(super) struct Progress {
    what: &'static str,
    terminal: bool,
    coloured: bool,
    began: Instant,
    told: Instant,
    drawn: bool,
}

impl Progress {
    /// `what` is being done, as in `replayed`.
    pub(super) fn new(what: &'static str) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Progress {
            what,
            terminal,
            coloured: terminal && super::no_color_is_unset(),
            began: now,
            told: now,
            drawn: false,
        }
    }

    /// So many of so many are done.
    pub(super) fn tell(&mut self, done: usize, total: usize) {
        let every = if self.terminal { REDRAWN_EVERY } else { TOLD_EVERY };
        if total == 0 || self.told.elapsed() < every {
            return;
        }
        self.told = Instant::now();
        let text = line(self.what, done, total, self.began.elapsed());
        match (self.terminal, self.coloured) {
            (true, true) => {
                self.draw(&format!("\r\x1b[36m{}\x1b[0m {text}\x1b[K", bar(done, total)))
            }
            (true, false) => self.draw(&format!("\r{} {text}\x1b[K", bar(done, total))),
            (false, _) => super::tell(&text),
        }
    }

    /// Takes the line away again.
    pub(super) fn end(&mut self) {
        if self.drawn {
            self.draw("\r\x1b[K");
        }
    }

    fn draw(&mut self, text: &str) {
        self.drawn = true;
        let mut errors = std::io::stderr();
        // A terminal that has gone is told nothing more.
        errors.write_all(text.as_bytes()).and_then(|()| errors.flush()).ok();
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

//! Progress of a benchmark: one changing line on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

pub struct Progress {
    began: Instant,
    terminal: bool,
}

impl Progress {
    pub fn start() -> Progress {
        Progress { began: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Shows the step that begins now; on a terminal the next line replaces it.
    pub fn step(&self, text: &str) {
        if self.terminal {
            self.write(&format!("\r\x1b[K{} … {text}", self.clock()));
        }
    }

    pub fn say(&self, text: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        self.write(&format!("{clear}{}   {text}\n", self.clock()));
    }

    fn clock(&self) -> String {
        let seconds = self.began.elapsed().as_secs();
        format!("{:>2}:{:02}", seconds / 60, seconds % 60)
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        // Nobody may be listening, and that is no reason to stop.
        drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    }
}

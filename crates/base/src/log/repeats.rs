//! Bounds how often a line of the log is repeated: one limit for all that may be due once per event
//! or per reconnect.
//!
//! Lines of one kind come from one place in the code and have the same codes. In each period the first of a
//! kind are written and the others counted; the count is written once the period is over, or at the end of
//! the process. The number of kinds is bounded by the program, because codes are constants of it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::line::Line;

const PERIOD: Duration = Duration::from_secs(30);
const LINES_MAX: u64 = 10;

/// The name of a place in the code, and the codes of its line.
type Kind = (&'static str, String);

#[derive(Default)]
pub(super) struct Repeats {
    kinds: HashMap<Kind, Repeated>,
}

struct Repeated {
    period_began: Instant,
    last_at: Instant,
    /// The number of lines in this period, written or not.
    lines: u64,
    /// The first line of this period.
    sample: Line,
}

impl Repeats {
    /// Whether a line may be written now. [`Repeats::take_counts`] comes first, because this begins the
    /// next period.
    pub(super) fn permit(
        &mut self,
        kind: Kind,
        now: Instant,
        sample: impl FnOnce() -> Line,
    ) -> bool {
        let known = self.kinds.get_mut(&kind);
        match known.filter(|known| now.duration_since(known.period_began) < PERIOD) {
            Some(known) => {
                (known.last_at, known.lines) = (now, known.lines + 1);
                known.lines <= LINES_MAX
            }
            None => {
                let begun =
                    Repeated { period_began: now, last_at: now, lines: 1, sample: sample() };
                self.kinds.insert(kind, begun);
                true
            }
        }
    }

    /// Makes a line for each kind with the number of lines that were not written in a period that is over;
    /// with `all` in any.
    pub(super) fn take_counts(&mut self, now: Instant, all: bool) -> Vec<Line> {
        let is_due = |known: &Repeated| all || now.duration_since(known.period_began) >= PERIOD;
        let kept_back = self.kinds.values_mut().filter(|it| it.lines > LINES_MAX && is_due(it));
        kept_back
            .map(|known| {
                let count = std::mem::replace(&mut known.lines, LINES_MAX) - LINES_MAX;
                let seconds = known.last_at.duration_since(known.period_began).as_secs().max(1);
                let mut line = known.sample.clone();
                line.message = format!("… {count} more in {seconds} s: {}", line.message);
                line
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "repeats_tests.rs"]
mod tests;

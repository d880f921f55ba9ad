//! A stop that protects data: the relay ended because events may be missing, or would be. It stands
//! until somebody acknowledges it, whatever restarts the process; so it is kept outside of the
//! process, as this.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::error::{Doubt, Exit, Fault};
use crate::base::text::truncated;
use crate::base::time::rfc3339;

/// Too many dead letters. It belongs to the dead-letter topic, and so is kept there.
pub const BREAKER_OPEN: &str = "dead-letter.breaker-open";
/// The publication may have held rows back.
pub const PUBLICATION_RECREATED: &str = "publication.recreated";
/// The rows of a table, or of a partition, are not written to the WAL.
pub const TABLE_UNLOGGED: &str = "table.unlogged";
/// The database has gone back on its timeline.
pub const WENT_BACK: &str = "slot.went-back";
/// The database is on an earlier timeline.
pub const EARLIER_TIMELINE: &str = "slot.earlier-timeline";
/// The database at the address is another one.
pub const OTHER_SYSTEM: &str = "slot.other-system";

/// The command that acknowledges a stop.
pub const RESUME: &str = "walrelay resume";

/// Every code of such a stop. One that is read back must be among them.
const CODES: [(&str, Exit); 15] = [
    (BREAKER_OPEN, Exit::Halted),
    (PUBLICATION_RECREATED, Exit::Source),
    ("publication.missing", Exit::Source),
    ("publication.insert", Exit::Source),
    ("publication.table-missing", Exit::Source),
    ("publication.row-filter", Exit::Source),
    ("publication.column-list", Exit::Source),
    ("publication.generated-column", Exit::Source),
    ("publication.via-root", Exit::Source),
    ("publication.leaf", Exit::Source),
    (TABLE_UNLOGGED, Exit::Source),
    ("slot.moved", Exit::Slot),
    (WENT_BACK, Exit::Slot),
    (EARLIER_TIMELINE, Exit::Slot),
    (OTHER_SYSTEM, Exit::Slot),
];

/// Longest text that is kept.
const TEXT_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub code: String,
    /// When the relay stopped, in microseconds since the Unix epoch.
    pub since_unix_us: i64,
    pub what: String,
    pub place: String,
    #[serde(rename = "help")]
    pub mend: String,
    /// The range in doubt, as Postgres prints positions.
    pub from: String,
    pub to: String,
}

impl Stop {
    /// As people and programs are shown it.
    pub fn to_json(&self) -> Value {
        let Stop { code, what, place, mend, from, to, .. } = self;
        json!({ "code": code, "since": self.since(), "what": what, "where": place, "help": mend,
            "from": from, "to": to })
    }

    pub fn of(fault: &Fault, since_unix_us: i64) -> Stop {
        let text = |text: &str| truncated(text, TEXT_BYTES_MAX).to_owned();
        let Doubt { from, to } = fault.doubt.as_deref().copied().unwrap_or_default();
        Stop {
            code: fault.code.to_owned(),
            since_unix_us,
            what: text(&fault.what),
            place: text(&fault.place),
            mend: text(&fault.mend),
            from: from.to_string(),
            to: to.to_string(),
        }
    }

    /// The fault with which the next process ends. None for a code that no stop has.
    pub fn fault(&self) -> Option<Fault> {
        let (code, exit) = CODES.into_iter().find(|(code, _)| *code == self.code)?;
        let since = self.since();
        let what = format!("stopped since {since}, and not acknowledged: {}", self.what);
        let (from, to) =
            (self.from.parse().unwrap_or_default(), self.to.parse().unwrap_or_default());
        Some(Fault::new(exit, code, what, self.place.clone(), self.mend.clone()).standing(from, to))
    }

    pub fn since(&self) -> String {
        rfc3339(self.since_unix_us)
    }

    /// The same stop, not a later one with the same code.
    pub fn is(&self, code: &str, since_unix_us: i64) -> bool {
        self.code == code && self.since_unix_us == since_unix_us
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;

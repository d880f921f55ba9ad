//! [`Fault`] is the only form in which a failure is reported to users: what is wrong, where, and
//! the command or SQL that mends it. Scripts recognise it by its stable [`Fault::code`]; its
//! [`Exit`] is the exit code of the process.

use std::fmt;

use serde_json::{Value, json};

use crate::base::lsn::Lsn;
use crate::base::text::{bounded, escaped, escaped_lines};

/// Most bytes of each text of a fault: statements for many tables are long, and nothing else is.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    /// Any failure without a code of its own.
    Failed = 1,
    /// Bad usage or configuration.
    Usage = 2,
    /// The slot is missing, lost, or not ours.
    Slot = 3,
    /// The source is unusable: authentication, version, `wal_level`, publication.
    Source = 4,
    /// The sink is unusable.
    Sink = 5,
    /// Halted by policy: an event cannot be published.
    Halted = 6,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Stable name, e.g. `slot.missing`, `config.unknown-key`.
    pub code: &'static str,
    pub exit: Exit,
    /// The fault in one sentence.
    pub what: String,
    /// Where: file and key, slot, table, topic, server. Empty when `what` says it already.
    pub place: String,
    /// The command or SQL that mends it.
    pub mend: String,
    /// Set where the stop protects data, and so outlives the process: see [`super::stop`].
    pub doubt: Option<Box<Doubt>>,
    /// It may pass by itself, as the outage of a server does: a relay that runs tries again.
    pub may_pass: bool,
}

/// Where events may be missing: what was committed between the two positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    pub from: Lsn,
    pub to: Lsn,
}

impl Fault {
    pub fn new(
        exit: Exit,
        code: &'static str,
        what: impl Into<String>,
        place: impl Into<String>,
        mend: impl Into<String>,
    ) -> Fault {
        let text = |text: String| bounded(text, TEXT_BYTES_MAX);
        let (what, place, mend) = (text(what.into()), text(place.into()), text(mend.into()));
        Fault { code, exit, what, place, mend, doubt: None, may_pass: false }
    }

    /// The stop stays until somebody acknowledges it.
    #[must_use]
    pub fn standing(self, from: Lsn, to: Lsn) -> Fault {
        Fault { doubt: Some(Box::new(Doubt { from, to })), ..self }
    }

    /// Sets [`Fault::may_pass`].
    #[must_use]
    pub fn passing(self) -> Fault {
        Fault { may_pass: true, ..self }
    }

    /// The four fields that the command line shows as well.
    pub fn to_json(&self) -> Value {
        let Fault { code, what, place, mend, .. } = self;
        json!({ "code": code, "what": what, "where": place, "help": mend })
    }

    /// For faults with which the process does not end.
    pub fn log(&self) {
        let Fault { code, what, place, mend, .. } = self;
        tracing::error!(code, "where" = place, help = mend, "{what}");
    }
}

/// For functions that return all faults they find.
impl From<Fault> for Vec<Fault> {
    fn from(fault: Fault) -> Vec<Fault> {
        vec![fault]
    }
}

/// Texts are escaped, because rows, brokers and files have a part in them; only `mend` has several
/// lines.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, escaped(&self.what))?;
        if !self.place.is_empty() {
            write!(f, "\n  where: {}", escaped(&self.place))?;
        }
        if !self.mend.is_empty() {
            let mend = escaped_lines(&self.mend);
            write!(f, "\n  help:  {}", mend.replace('\n', "\n         "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;

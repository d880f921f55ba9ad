//! How a failure is reported and what follows from it.
//!
//! [`Fault`] is the only shape in which a failure reaches a person: what is wrong, where, and the
//! command or SQL that mends it. Its [`Exit`] is the process exit code. A stable [`Fault::code`]
//! lets scripts and tests recognise a fault without reading prose.

use std::fmt;

use crate::base::text::{escaped, escaped_lines};

/// Why the process ends; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed for a reason that has no code of its own.
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

/// A failure as it is reported to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Stable name, e.g. `slot.missing`, `config.unknown-key`.
    pub code: &'static str,
    /// The exit code it leads to.
    pub exit: Exit,
    /// What is wrong, one sentence.
    pub what: String,
    /// Where: file and key, slot, table, topic, server. Empty when `what` says it already.
    pub place: String,
    /// The command or SQL that mends it.
    pub mend: String,
}

impl Fault {
    /// A fault with its mending hint.
    pub fn new(
        exit: Exit,
        code: &'static str,
        what: impl Into<String>,
        place: impl Into<String>,
        mend: impl Into<String>,
    ) -> Fault {
        Fault { code, exit, what: what.into(), place: place.into(), mend: mend.into() }
    }

    /// Logs it, where the process does not end with it.
    pub fn log(&self) {
        let Fault { code, what, place, mend, .. } = self;
        tracing::error!(code, "where" = place, mend, "{what}");
    }
}

/// What others wrote into it (a row, a broker, a file) stays within its line. Only `mend` has lines of
/// its own.
/// Where all faults are collected, one fault ends it as well.
impl From<Fault> for Vec<Fault> {
    fn from(fault: Fault) -> Vec<Fault> {
        vec![fault]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, escaped(&self.what))?;
        if !self.place.is_empty() {
            write!(f, "\n  where: {}", escaped(&self.place))?;
        }
        if !self.mend.is_empty() {
            let mend = escaped_lines(&self.mend);
            write!(f, "\n  mend:  {}", mend.replace('\n', "\n         "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;

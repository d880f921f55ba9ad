//! Facts that a server states about itself, and its ways to refuse.
//!
//! SQLSTATEs decide, never the text of a message: servers translate messages where `lc_messages`
//! says so. Where one SQLSTATE means several things, the name of the server's C function (which is
//! never translated) tells them apart.

use std::fmt;
use std::sync::Arc;

use crate::base::fingerprint::fingerprint;
use crate::mutants::{Mutant, on};

/// When a server was started, to the microsecond: another server, also one that goes on from a copy
/// of the same data, and the same one after a restart have another time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStart(Arc<str>);

/// The time in which a server forgets nothing: it ends with a restart, and with a crash, which the
/// postmaster may outlive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerRun {
    pub start: ServerStart,
    /// When the statistics were reset last, as a crash does; unknown before 15.
    stats_reset_unix_us: Option<i64>,
}

impl ServerRun {
    pub fn new(start: ServerStart, stats_reset_unix_us: Option<i64>) -> ServerRun {
        let stats_reset_unix_us = stats_reset_unix_us.filter(|_| !on(Mutant::RunByPostmaster));
        ServerRun { start, stats_reset_unix_us }
    }

    /// The same in every process; none if a crash that the postmaster outlives would not change it.
    pub fn fingerprint(&self) -> Option<u64> {
        let reset_at = self.stats_reset_unix_us?;
        Some(fingerprint(&format!("{}/{reset_at}", self.start.0)))
    }
}

impl From<&str> for ServerStart {
    fn from(text: &str) -> ServerStart {
        ServerStart(Arc::from(text))
    }
}

/// The kind of a failed connect, by which the caller decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectErrorKind {
    /// Try again with backoff.
    Retry,
    /// The slot is in use, by another process or by an earlier connection of this one.
    Busy,
    /// The server starts, stops, or ended the connection: disconnect and try again later.
    Stopping,
    /// Another attempt would fail the same way.
    Fatal,
}

use ConnectErrorKind::{Busy, Fatal, Retry, Stopping};

/// Classes of SQLSTATE whose details quote values of a row: data exceptions, violated constraints, and views
/// WITH CHECK OPTION.
const ABOUT_VALUES: [&str; 3] = ["22", "23", "44"];

/// The fields of an ErrorResponse or a NoticeResponse; empty where the server did not send them, or where
/// they would quote a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
    /// The C function that raised it.
    pub routine: String,
    /// The function, called by the statement, in which it was raised.
    pub context: String,
}

impl ServerError {
    /// The fields of the message: a letter and a text that ends with a zero byte each.
    #[must_use]
    pub fn parse(payload: &[u8]) -> ServerError {
        let mut error = ServerError::default();
        for field in payload.split(|byte| *byte == 0) {
            let Some((kind, text)) = field.split_first() else { continue };
            let text = String::from_utf8_lossy(text).into_owned();
            match kind {
                b'C' => error.sqlstate = text,
                b'M' => error.message = text,
                b'D' => error.detail = text,
                b'H' => error.hint = text,
                b'R' => error.routine = text,
                b'W' => error.context = text,
                _ => {}
            }
        }
        error.without_values()
    }

    /// Without what quotes values of rows, which no log may show: the detail of an error that is about a
    /// value, and of the context all but the outermost function. A statement that a function has composed
    /// stands within it, and the JSON that was being parsed; behind it the parameters of the statement.
    #[must_use]
    pub fn without_values(mut self) -> ServerError {
        if self.sqlstate.get(..2).is_some_and(|class| ABOUT_VALUES.contains(&class)) {
            self.detail.clear();
        }
        // The parser of JSON shows the text in the first line, which may be the only one.
        let shown = usize::from(self.routine.starts_with("json_"));
        let functions =
            self.context.lines().skip(shown).take_while(|line| !line.contains(": $1 = "));
        self.context = functions.last().unwrap_or_default().to_owned();
        self
    }

    /// The publication does not exist, or did not when the WAL that is decoded was written.
    pub fn is_missing_publication(&self) -> bool {
        self.sqlstate == "42704" && self.routine.contains("ublication")
    }

    /// The warning with which Postgres, from 18 on, skips changes for want of the publication.
    pub fn is_skipped_publication(&self) -> bool {
        self.sqlstate == "55000" && self.routine == "LoadPublications"
    }

    /// Postgres has no binary form for a part of a value.
    pub fn is_without_binary(&self) -> bool {
        self.sqlstate == "42883"
    }

    /// The walsender of a failover slot waits for a standby of `synchronized_standby_slots`. A warning, or
    /// an error once the server shuts down.
    pub fn is_wait_for_standby(&self) -> bool {
        self.routine == "StandbySlotsHaveCaughtup"
    }

    /// The database accepts no connections until an administrator lets it (`ALLOW_CONNECTIONS`).
    pub fn is_closed_database(&self) -> bool {
        self.sqlstate == "55000" && self.routine == "CheckMyDatabase"
    }

    pub fn kind(&self) -> ConnectErrorKind {
        if self.is_wait_for_standby() || self.is_closed_database() {
            return Retry;
        }
        match self.sqlstate.as_str() {
            "55006" => Busy,
            // Admin shutdown, crash shutdown, cannot connect now.
            "57P01" | "57P02" | "57P03" => Stopping,
            // Time limits of a session or a transaction; a lock that was waited for too long.
            "25P03" | "25P04" | "55P03" => Retry,
            // The database was dropped; a WAL file that the slot needs is gone.
            "57P04" | "58P01" => Fatal,
            code => match code.get(..2) {
                // Connection, rollback, resources, operator, system, internal: all may pass.
                Some("08" | "40" | "53" | "57" | "58" | "XX") => Retry,
                // 28 login, 3D database, 42 missing or forbidden, 55 wrong state, and unknown ones.
                _ => Fatal,
            },
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.sqlstate)?;
        if !self.detail.is_empty() {
            write!(f, "; {}", self.detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

//! Claimed rows, which workers pass to the loop, and the verdicts that the loop returns.

use std::time::{Duration, Instant};

use crate::base::lsn::Lsn;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolledRow {
    pub id: String,
    /// When it was written, in microseconds since the Unix epoch.
    pub created_unix_us: i64,
    /// Attempts that have failed before.
    pub attempts: u32,
    /// The event's columns as pgoutput would send them, in text form.
    pub tuple: Vec<u8>,
}

/// Rows of one claim, in their order.
#[derive(Debug)]
pub struct Batch {
    /// The mark of the claimed rows. No other batch of the process has the same.
    pub claim: String,
    /// When the claim began.
    pub claimed_at: Instant,
    /// The server's position when they were claimed.
    pub lsn: Lsn,
    pub rows: Vec<PolledRow>,
}

/// The outcome of rows of one claim, by id. A claim may have several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub claim: String,
    /// The broker has confirmed them.
    pub published: Vec<String>,
    /// The dead-letter topic has confirmed them.
    pub failed: Vec<FailedRow>,
    /// They will be tried again.
    pub noted: Vec<FailedRow>,
    /// The loop has ended before they were confirmed.
    pub given_back: Vec<String>,
    /// The loop has no further row of the claim.
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRow {
    pub id: String,
    /// Attempts that have failed.
    pub attempts: u32,
    /// Why the last attempt has failed.
    pub reason: String,
    /// How long until the next attempt.
    pub wait: Duration,
}

impl Verdicts {
    #[must_use]
    pub fn of(claim: String) -> Verdicts {
        Verdicts { claim, ..Verdicts::default() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Verdicts { claim: _, published, failed, noted, given_back, last: _ } = self;
        published.is_empty() && failed.is_empty() && noted.is_empty() && given_back.is_empty()
    }
}

//! Claimed rows, which workers pass to the loop, and the verdicts that the loop returns.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_postgres::Row as SqlRow;

use super::statements::{ATTEMPTS, CREATED, EVENT, ID};
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
    /// What the rows are marked with.
    pub claim: String,
    /// When the claim began.
    pub claimed_at: Instant,
    /// The server's position when they were claimed.
    pub lsn: Lsn,
    pub rows: Vec<PolledRow>,
    /// Takes one answer. Verdicts that are not in it come as [`Late`].
    pub answer: oneshot::Sender<Verdicts>,
}

/// The outcome of rows of one claim, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
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

/// Verdicts for which no worker waits.
#[derive(Debug)]
pub struct Late {
    pub claim: String,
    pub verdicts: Verdicts,
}

impl Verdicts {
    pub fn is_empty(&self) -> bool {
        let Verdicts { published, failed, noted, given_back, last: _ } = self;
        published.is_empty() && failed.is_empty() && noted.is_empty() && given_back.is_empty()
    }
}

pub(crate) fn read(rows: &[SqlRow]) -> Result<Vec<PolledRow>, tokio_postgres::Error> {
    let read = |row: &SqlRow| {
        let attempts = row.try_get::<_, Option<i32>>(ATTEMPTS)?.unwrap_or_default();
        Ok(PolledRow {
            id: row.try_get(ID)?,
            created_unix_us: row.try_get::<_, Option<i64>>(CREATED)?.unwrap_or_default(),
            attempts: u32::try_from(attempts).unwrap_or(0),
            tuple: tuple(row)?,
        })
    };
    rows.iter().map(read).collect()
}

/// The event's columns as pgoutput writes a row in text form.
fn tuple(row: &SqlRow) -> Result<Vec<u8>, tokio_postgres::Error> {
    let values = (EVENT..row.len()).map(|at| row.try_get::<_, Option<&str>>(at));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    Ok(encode(&values))
}

fn encode(values: &[Option<&str>]) -> Vec<u8> {
    let size: usize = values.iter().map(|value| 5 + value.map_or(0, str::len)).sum();
    let mut bytes = Vec::with_capacity(2 + size);
    // A table has at most 1,600 columns.
    bytes.extend_from_slice(&u16::try_from(values.len()).unwrap_or(u16::MAX).to_be_bytes());
    for value in values {
        match value {
            None => bytes.push(b'n'),
            Some(text) => {
                bytes.push(b't');
                // A value has at most a gigabyte.
                bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
    bytes
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;

//! Looks for published events in what a broker holds, without taking them away, and never in more
//! than the partition of their key.
//!
//! A search is bounded in time, and says in sentences what it has read and what it could not read: an
//! answer that leaves this out would be taken for "it is not there".

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use walrelay_base::template::Template;

/// Where the events went that are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRoute {
    /// A template with columns, where no row is known.
    pub topic: Template,
    /// Ordering key, which decides the partition if the row does not name it.
    pub key: Option<Vec<u8>>,
    /// Partition that the row itself names.
    pub partition: Option<i32>,
}

/// The routes, the time and the limits of a search.
pub struct SearchScope<'a> {
    pub routes: &'a [SearchRoute],
    /// Records that were written at this time or later; microseconds since the Unix epoch.
    pub from_unix_us: i64,
    pub limits: SearchLimits<'a>,
}

/// When a search ends, whatever is left.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits<'a> {
    pub deadline: Instant,
    /// Set when nobody waits for the answer any more.
    pub stop: &'a AtomicBool,
}

impl SearchLimits<'_> {
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Why nothing more is read, if that is so.
    pub fn reached(&self) -> Option<&'static str> {
        if self.stop.load(Ordering::Relaxed) {
            return Some("it was stopped");
        }
        self.left().is_zero().then_some("the time limit was reached")
    }
}

/// A record as the broker holds it.
#[derive(Clone, Copy, Debug)]
pub struct StoredRecord<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// The record's own timestamp; microseconds since the Unix epoch.
    pub written_unix_us: i64,
    pub key: Option<&'a [u8]>,
    pub headers: &'a [(String, Vec<u8>)],
}

/// Takes a record that may be one of those that are looked for.
pub type TakeRecord<'t> = dyn FnMut(&StoredRecord<'_>) + 't;

/// Places that were searched, and those that could not be, a sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchReport {
    pub searched: Vec<String>,
    pub not_searched: Vec<String>,
    /// Routes of which every record was read.
    pub complete: Vec<SearchRoute>,
}

impl SearchReport {
    pub fn not_possible(reason: impl Into<String>) -> SearchReport {
        SearchReport { not_searched: vec![reason.into()], ..SearchReport::default() }
    }
}

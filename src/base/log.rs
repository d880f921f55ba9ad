//! What the limit of repeated lines of the log must know of their writers: which lines are all written,
//! and when the counts of those that were not are due.
//!
//! The limit is part of what writes the lines, so it is told by a line, which is not written itself.

/// Target of findings: each names another thing, and whoever writes them repeats none.
pub const FINDINGS: &str = "walrelay::findings";
/// Target of the lines that make the limit write its counts.
pub const COUNTS: &str = "walrelay::counts";
/// One of them, for counts of periods that are not over as well.
pub const LAST_COUNTS: &str = "walrelay::counts::last";

/// To be called about once a second.
pub fn write_due_counts() {
    tracing::info!(target: COUNTS, "counts of lines that were not written");
}

/// To be called before the process ends.
pub fn write_last_counts() {
    tracing::info!(target: LAST_COUNTS, "counts of lines that were not written");
}

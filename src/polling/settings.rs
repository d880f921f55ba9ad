//! What polling obeys: `[source.polling]`, typed.

use std::time::Duration;

/// The `[source.polling]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollingSettings {
    /// How often the table is asked. Default 500ms.
    pub interval: Duration,
    /// Connections that claim and settle at once. Default 4.
    pub workers: usize,
    /// Most rows of one claim. Default 500.
    pub batch_max: usize,
    /// How long a claimed row belongs to its process without a sign of life. Default 30s.
    pub lease: Duration,
    /// What becomes of a row that was published.
    pub on_published: OnPublished,
    /// Names of the columns that polling writes.
    pub columns: WorkColumns,
    /// What stands in the status column.
    pub words: Words,
    /// Deleting what was published long ago.
    pub cleanup: Cleanup,
}

/// `on_published`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPublished {
    /// Its status changes.
    Update,
    /// It is deleted.
    Delete,
}

/// Columns that polling reads and writes, beside those of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkColumns {
    /// Rises in the order in which a key's rows are to be published. Default `id`.
    pub order: String,
    /// Status word.
    pub status: String,
    /// Attempts that have failed.
    pub retry_count: String,
    /// Not to be claimed before.
    pub next_retry_at: String,
    /// When it was claimed, or its claim was last renewed.
    pub locked_at: String,
    /// Who has claimed it last.
    pub locked_by: String,
    /// Why the last attempt failed.
    pub failure_reason: String,
    /// When it was given up.
    pub failed_at: String,
    /// When it was written; the event's time.
    pub created_at: String,
}

/// Status words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// To be published.
    pub pending: String,
    /// Claimed.
    pub in_progress: String,
    /// Confirmed by the broker.
    pub published: String,
    /// Given up.
    pub failed: String,
}

/// Deleting published rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// Off by default is nobody's wish: a table that only grows is slow to poll.
    pub enabled: bool,
    /// Rows that were written longer ago than this go.
    pub older_than: Duration,
    /// Most rows of one DELETE.
    pub batch_max: usize,
    /// Between two looks.
    pub interval: Duration,
}

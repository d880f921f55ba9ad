//! The `[source.polling]` section.

use std::time::Duration;

use crate::base::settings::kind::{FILLED, IDENTIFIER};
use crate::base::settings::{
    Choice, HOUR_MS, SECOND_MS, choice, duration, flag, integer, section, settings, text,
};
use crate::source::quote::{quote_ident, quote_literal};

const DAY_MS: u64 = 24 * HOUR_MS;

settings! {
    /// The `[source.polling]` section.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PollingSettings {
        /// How often the table is queried for new rows. After a claim of `batch_max` rows the next
        /// one follows at once.
        pub interval: Duration = duration(1, HOUR_MS).default("500ms"),
        /// Number of workers. Each publishes one batch at a time, over a connection of its own.
        pub workers: usize = integer(1, 256).default("4"),
        /// Maximum number of rows of one claim.
        pub batch_max: usize = integer(1, 10_000).default("500"),
        /// A claim expires when its process has not renewed it for this long. After a crash the
        /// claimed rows, and later rows of their keys, wait until then.
        pub lease: Duration = duration(SECOND_MS, DAY_MS).default("30s"),
        /// The change of a published row: its status is updated, or the row is deleted.
        pub on_published: OnPublished = choice().default("update"),
        /// Columns that polling reads and writes, beside those of the event.
        pub columns: WorkColumns = section(),
        /// Values of the status column.
        pub status_values: StatusValues = section(),
        /// Deleting published rows.
        pub cleanup: Cleanup = section(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPublished {
    Update,
    Delete,
}

impl Choice for OnPublished {
    const WORDS: &'static [(&'static str, OnPublished)] =
        &[("update", OnPublished::Update), ("delete", OnPublished::Delete)];
}

settings! {
    /// Columns that polling reads and writes, beside those of the event.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WorkColumns {
        /// Column that increases in the order in which the rows of one key are to be published. A
        /// random uuid does not.
        pub order: String = text(IDENTIFIER).default("id"),
        /// Column of the status.
        pub status: String = text(IDENTIFIER).default("status"),
        /// Column that counts failed attempts.
        pub retry_count: String = text(IDENTIFIER).default("retry_count"),
        /// Column of the time before which a row is not retried.
        pub next_retry_at: String = text(IDENTIFIER).default("next_retry_at"),
        /// Column of the time of the claim, or of its last renewal.
        pub locked_at: String = text(IDENTIFIER).default("locked_at"),
        /// Column of the name of the claim that had the row last (host, process, number), or
        /// `handover` or `retry`.
        pub locked_by: String = text(IDENTIFIER).default("locked_by"),
        /// Column of the text of the last failure.
        pub failure_reason: String = text(IDENTIFIER).default("failure_reason"),
        /// Column of the time when a row was given up.
        pub failed_at: String = text(IDENTIFIER).default("failed_at"),
        /// Column of the time when a row was inserted. It is the time of the event, and the
        /// clean-up goes by it.
        pub created_at: String = text(IDENTIFIER).default("created_at"),
    }
}

settings! {
    /// Values of the status column.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StatusValues {
        /// The value of a row that is to be published.
        pub pending: String = text(FILLED).default("pending"),
        /// The value of a row that a process has claimed.
        pub in_progress: String = text(FILLED).default("in_progress"),
        /// The value of a row that the broker has confirmed.
        pub published: String = text(FILLED).default("published"),
        /// The value of a row that was given up.
        pub failed: String = text(FILLED).default("failed"),
    }
}

settings! {
    /// Deleting published rows: a table that only grows is slow to poll.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Cleanup {
        /// Delete rows that were published long ago. Others are never deleted.
        pub enabled: bool = flag().default("true"),
        /// Published rows are deleted when they were inserted longer ago than this.
        pub older_than: Duration = duration(0, 3650 * DAY_MS).default("7d"),
        /// Maximum number of rows of one DELETE.
        pub batch_max: usize = integer(1, 100_000).default("1000"),
        /// Time between two clean-ups.
        pub interval: Duration = duration(SECOND_MS / 10, DAY_MS).default("1m"),
    }
}

impl WorkColumns {
    /// As SQL.
    pub(crate) fn quoted(&self) -> WorkColumns {
        WorkColumns {
            order: quote_ident(&self.order),
            status: quote_ident(&self.status),
            retry_count: quote_ident(&self.retry_count),
            next_retry_at: quote_ident(&self.next_retry_at),
            locked_at: quote_ident(&self.locked_at),
            locked_by: quote_ident(&self.locked_by),
            failure_reason: quote_ident(&self.failure_reason),
            failed_at: quote_ident(&self.failed_at),
            created_at: quote_ident(&self.created_at),
        }
    }
}

impl StatusValues {
    /// As SQL.
    pub(crate) fn quoted(&self) -> StatusValues {
        StatusValues {
            pending: quote_literal(&self.pending),
            in_progress: quote_literal(&self.in_progress),
            published: quote_literal(&self.published),
            failed: quote_literal(&self.failed),
        }
    }
}

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
        /// How often the table is asked for new rows. While a claim comes back full, the next
        /// follows at once.
        pub interval: Duration = duration(1, HOUR_MS).default("500ms"),
        /// Batches under way at once, each on a connection of its own.
        pub workers: usize = integer(1, 256).default("4"),
        /// Most rows of one claim.
        pub batch_max: usize = integer(1, 10_000).default("500"),
        /// A claimed row is free again when its process has not renewed the claim for this long. A
        /// crashed process holds its rows, and their keys, until then.
        pub lease: Duration = duration(SECOND_MS, DAY_MS).default("30s"),
        /// What becomes of a published row: its status changes, or it is deleted.
        pub on_published: OnPublished = choice().default("update"),
        /// Columns that polling reads and writes, beside those of the event.
        pub columns: WorkColumns = section(),
        /// The values of the status column.
        pub words: StatusValues = section(),
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
        /// Column that rises in the order in which the rows of one key are to be published. Not a
        /// random uuid.
        pub order: String = text(IDENTIFIER).default("id"),
        /// Column of the status word.
        pub status: String = text(IDENTIFIER).default("status"),
        /// Column that counts failed attempts.
        pub retry_count: String = text(IDENTIFIER).default("retry_count"),
        /// Column of the time before which a row is not tried again.
        pub next_retry_at: String = text(IDENTIFIER).default("next_retry_at"),
        /// Column of the time of the claim, or of its last renewal.
        pub locked_at: String = text(IDENTIFIER).default("locked_at"),
        /// Column that names the process which claimed the row last.
        pub locked_by: String = text(IDENTIFIER).default("locked_by"),
        /// Column of the last failure, for people.
        pub failure_reason: String = text(IDENTIFIER).default("failure_reason"),
        /// Column of the time when a row was given up.
        pub failed_at: String = text(IDENTIFIER).default("failed_at"),
        /// Column of the time when a row was written: the event's time, and its age for the
        /// clean-up.
        pub created_at: String = text(IDENTIFIER).default("created_at"),
    }
}

settings! {
    /// What stands in the status column.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StatusValues {
        /// To be published.
        pub pending: String = text(FILLED).default("pending"),
        /// Claimed.
        pub in_progress: String = text(FILLED).default("in_progress"),
        /// Confirmed by the broker.
        pub published: String = text(FILLED).default("published"),
        /// Given up.
        pub failed: String = text(FILLED).default("failed"),
    }
}

settings! {
    /// Deleting published rows: a table that only grows is slow to poll.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Cleanup {
        /// Delete rows that were published long ago. Others are never deleted.
        pub enabled: bool = flag().default("true"),
        /// Published rows go when they were written longer ago than this.
        pub older_than: Duration = duration(0, 3650 * DAY_MS).default("7d"),
        /// Most rows of one DELETE.
        pub batch_max: usize = integer(1, 100_000).default("1000"),
        /// Between two clean-ups.
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

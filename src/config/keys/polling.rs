//! The keys of `[source.polling]`.

use super::{Absent, HOUR_MS, Row, SECOND_MS, within_ms};
use crate::config::kind::{Kind, rule};

pub(super) const ROWS: &[Row] = &[
    (
        "interval",
        within_ms(1, HOUR_MS),
        Absent::Value("500ms"),
        "How often the table is asked for new rows. While a claim comes back full, the next follows at once.",
    ),
    (
        "workers",
        Kind::Integer { min: 1, max: 256 },
        Absent::Value("4"),
        "Batches under way at once, each on a connection of its own.",
    ),
    (
        "batch_max",
        Kind::Integer { min: 1, max: 10_000 },
        Absent::Value("500"),
        "Most rows of one claim.",
    ),
    (
        "lease",
        within_ms(SECOND_MS, 24 * HOUR_MS),
        Absent::Value("30s"),
        "A claimed row is free again when its process has not renewed the claim for this long. A crashed process holds its rows, and their keys, until then.",
    ),
    (
        "on_published",
        Kind::Choice(&["update", "delete"]),
        Absent::Value("update"),
        "What becomes of a published row: its status changes, or it is deleted.",
    ),
];

pub(super) const COLUMNS: &[Row] = &[
    (
        "order",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("id"),
        "Column that rises in the order in which the rows of one key are to be published. Not a random uuid.",
    ),
    ("status", Kind::Text(rule::IDENTIFIER), Absent::Value("status"), "Column of the status word."),
    (
        "retry_count",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("retry_count"),
        "Column that counts failed attempts.",
    ),
    (
        "next_retry_at",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("next_retry_at"),
        "Column of the time before which a row is not tried again.",
    ),
    (
        "locked_at",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("locked_at"),
        "Column of the time of the claim, or of its last renewal.",
    ),
    (
        "locked_by",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("locked_by"),
        "Column that names the process which claimed the row last.",
    ),
    (
        "failure_reason",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("failure_reason"),
        "Column of the last failure, for people.",
    ),
    (
        "failed_at",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("failed_at"),
        "Column of the time when a row was given up.",
    ),
    (
        "created_at",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("created_at"),
        "Column of the time when a row was written: the event's time, and its age for the clean-up.",
    ),
];

pub(super) const WORDS: &[Row] = &[
    ("pending", Kind::Text(rule::FILLED), Absent::Value("pending"), "To be published."),
    ("in_progress", Kind::Text(rule::FILLED), Absent::Value("in_progress"), "Claimed."),
    ("published", Kind::Text(rule::FILLED), Absent::Value("published"), "Confirmed by the broker."),
    ("failed", Kind::Text(rule::FILLED), Absent::Value("failed"), "Given up."),
];

pub(super) const CLEANUP: &[Row] = &[
    (
        "enabled",
        Kind::Bool,
        Absent::Value("true"),
        "Delete rows that were published long ago. Others are never deleted.",
    ),
    (
        "older_than",
        within_ms(0, 10 * 365 * 24 * HOUR_MS),
        Absent::Value("168h"),
        "Published rows go when they were written longer ago than this.",
    ),
    (
        "batch_max",
        Kind::Integer { min: 1, max: 100_000 },
        Absent::Value("1000"),
        "Most rows of one DELETE.",
    ),
    (
        "interval",
        within_ms(SECOND_MS / 10, 24 * HOUR_MS),
        Absent::Value("1m"),
        "Between two clean-ups.",
    ),
];

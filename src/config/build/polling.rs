//! `[source.polling]`, typed.

use crate::config::effective::POLLING;
use crate::config::path::Path;
use crate::polling::settings::{Cleanup, OnPublished, PollingSettings, Words, WorkColumns};

use super::Values;

/// Nothing unless `source.mode` says so.
pub(super) fn polling(values: Values<'_>) -> Option<PollingSettings> {
    if values.text(&Path::of("source.mode")) != "polling" {
        return None;
    }
    let section = Path::of(POLLING);
    let at = |name: &str| section.child(name);
    let count = |path: &Path| usize::try_from(values.integer(path)).unwrap_or(usize::MAX);
    let column = |name: &str| values.text(&at("columns").child(name));
    let word = |name: &str| values.text(&at("words").child(name));
    let cleanup = |name: &str| at("cleanup").child(name);
    Some(PollingSettings {
        interval: values.duration(&at("interval")),
        workers: count(&at("workers")),
        batch_max: count(&at("batch_max")),
        lease: values.duration(&at("lease")),
        on_published: match values.text(&at("on_published")).as_str() {
            "delete" => OnPublished::Delete,
            _ => OnPublished::Update,
        },
        columns: WorkColumns {
            order: column("order"),
            status: column("status"),
            retry_count: column("retry_count"),
            next_retry_at: column("next_retry_at"),
            locked_at: column("locked_at"),
            locked_by: column("locked_by"),
            failure_reason: column("failure_reason"),
            failed_at: column("failed_at"),
            created_at: column("created_at"),
        },
        words: Words {
            pending: word("pending"),
            in_progress: word("in_progress"),
            published: word("published"),
            failed: word("failed"),
        },
        cleanup: Cleanup {
            enabled: values.flag(&cleanup("enabled")),
            older_than: values.duration(&cleanup("older_than")),
            batch_max: count(&cleanup("batch_max")),
            interval: values.duration(&cleanup("interval")),
        },
    })
}

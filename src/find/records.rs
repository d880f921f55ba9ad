//! The records of the events that are looked for, picked out of what a broker holds. Pure.

use super::event::{EventSighting, PublishedRecord, TRACEPARENT};
use super::request::{Wanted, WantedSpellings};
use crate::base::text::shown;
use crate::base::time::parse_rfc3339;
use crate::sink::search::StoredRecord;

/// Records that are kept, those that were read last. One event may have several: it was published again.
pub(super) const RECORDS_MAX: usize = 200;
/// The event id is the header `id`; in CloudEvents of other producers only the second or third.
const ID_HEADERS: [&str; 3] = ["id", "ce_id", "cloudEvents_id"];

#[derive(Debug)]
pub(super) struct RecordFilter<'a> {
    wanted: &'a WantedSpellings<'a>,
    pub(super) found: Vec<EventSighting<PublishedRecord>>,
    pub(super) is_cut: bool,
}

impl<'a> RecordFilter<'a> {
    pub(super) fn new(wanted: &'a WantedSpellings<'a>) -> RecordFilter<'a> {
        RecordFilter { wanted, found: Vec::new(), is_cut: false }
    }

    /// Keeps the record if it is one of those that are looked for.
    pub(super) fn take(&mut self, record: &StoredRecord<'_>) {
        let header = |wanted: &str| {
            let found = record.headers.iter().find(|(name, _)| name == wanted)?;
            Some(String::from_utf8_lossy(&found.1).into_owned())
        };
        let is_it = |id: &str| match self.wanted.typed {
            Wanted::Id(_) => self.wanted.is_id(id),
            Wanted::Key(wanted) => record.key.is_some_and(|key| {
                key == wanted.as_bytes() || shown(key) == *wanted || self.wanted.any(|it| it == key)
            }),
        };
        // Most records are not wanted: nothing is copied before that is known.
        let id = record.headers.iter().find(|(name, _)| ID_HEADERS.contains(&name.as_str()));
        let Some(id) = id.and_then(|(_, id)| std::str::from_utf8(id).ok()).filter(|id| is_it(id))
        else {
            return;
        };
        self.found.push(EventSighting {
            event_id: id.to_owned(),
            topic: record.topic.to_owned(),
            key: record.key.map(shown),
            lsn: header("lsn").and_then(|text| text.parse().ok()),
            commit_unix_us: header("commit_ts").and_then(|text| parse_rfc3339(&text)),
            traceparent: header(TRACEPARENT),
            of: PublishedRecord {
                topic: record.topic.to_owned(),
                partition: record.partition,
                offset: record.offset,
                written_unix_us: record.written_unix_us,
            },
        });
        if self.found.len() > RECORDS_MAX {
            self.found.remove(0);
            self.is_cut = true;
        }
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;

//! How large a dead letter may be: the least of what the client takes, what the topic takes as far
//! as the cluster tells, and what the broker has refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rdkafka::types::RDKafkaErrorCode as Code;

use super::record::Record;
use crate::base::event::Outbound;
use crate::dead_letter::fit::{Room, fit, head_bytes};

/// librdkafka's property, and its default.
pub(super) const PROPERTY: &str = "message.max.bytes";
const CLIENT_BYTES_MAX: usize = 1_000_000;
/// The header of a batch, and the lengths of the fields of its record.
const FRAME_BYTES: usize = 160;

/// Clones share the limit, so that a rebuilt sink knows what the one before it has learned.
#[derive(Clone, Debug)]
pub(super) struct RecordLimit {
    client_bytes_max: usize,
    bytes_max: Arc<AtomicUsize>,
}

impl Default for RecordLimit {
    fn default() -> RecordLimit {
        RecordLimit::new(None)
    }
}

impl RecordLimit {
    /// With the user's value of [`PROPERTY`].
    pub(super) fn new(property: Option<&str>) -> RecordLimit {
        let configured = property.and_then(|text| text.trim().parse().ok());
        let client_bytes_max = configured.unwrap_or(CLIENT_BYTES_MAX);
        RecordLimit { client_bytes_max, bytes_max: Arc::new(AtomicUsize::new(client_bytes_max)) }
    }

    /// The cluster says what the topic takes.
    pub(super) fn learn(&self, bytes_max: usize) {
        self.bytes_max.store(self.client_bytes_max.min(bytes_max), Relaxed);
    }

    /// A copy of a dead letter, cut to the limit.
    pub(super) fn fit_dead_letter(&self, letter: &Outbound<'_>, lane: Option<u64>) -> Record {
        let head_bytes = self.bytes_max.load(Relaxed).saturating_sub(FRAME_BYTES);
        let room = Room { head_bytes, value_bytes: None };
        fit(letter, &room, |it| Record { is_dead_letter: true, ..Record::copy(it, lane) })
    }

    /// A smaller copy of a dead letter that was refused with `code`; none when it was not too
    /// large, or cannot be made smaller.
    pub(super) fn cut_dead_letter(&self, code: Code, record: &Record) -> Option<Record> {
        let too_large =
            [Code::MessageSizeTooLarge, Code::InvalidMessageSize, Code::MessageBatchTooLarge];
        if !record.is_dead_letter || !too_large.contains(&code) {
            return None;
        }
        record.with_outbound(|letter| {
            let bytes = bytes_of(letter);
            if bytes + FRAME_BYTES <= self.bytes_max.load(Relaxed) {
                self.bytes_max.store(bytes / 2 + FRAME_BYTES, Relaxed);
            }
            let smaller = self.fit_dead_letter(letter, record.lane);
            (smaller.with_outbound(bytes_of) < bytes).then_some(smaller)
        })
    }
}

fn bytes_of(letter: &Outbound<'_>) -> usize {
    head_bytes(letter) + letter.value.map_or(0, <[u8]>::len)
}

#[cfg(test)]
#[path = "record_limit_tests.rs"]
mod tests;

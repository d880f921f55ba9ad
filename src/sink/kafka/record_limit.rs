//! How large a dead letter may be: the least of what the client takes, what the topic takes as far as
//! the cluster tells, and what was refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::base::event::Outbound;
use crate::dead_letter::fit::{Room, fit, head_bytes};

/// librdkafka's property, and its default.
pub(super) const PROPERTY: &str = "message.max.bytes";
const CLIENT_BYTES_MAX: usize = 1_000_000;
/// What a record costs beside key, value and headers: the head of its batch, and its own lengths.
const FRAME_BYTES: usize = 160;

/// The limit. Clones are the same: a sink that is built anew knows what the one before it did.
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
    /// With what the client was told, where it was told anything.
    pub(super) fn new(property: Option<&str>) -> RecordLimit {
        let told = property.and_then(|text| text.trim().parse().ok());
        let client_bytes_max = told.unwrap_or(CLIENT_BYTES_MAX);
        RecordLimit { client_bytes_max, bytes_max: Arc::new(AtomicUsize::new(client_bytes_max)) }
    }

    /// The cluster says what the topic takes.
    pub(super) fn learn(&self, bytes_max: usize) {
        self.bytes_max.store(self.client_bytes_max.min(bytes_max), Relaxed);
    }

    /// Hands a letter on that fits.
    pub(super) fn fit<T>(&self, letter: &Outbound<'_>, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let head_bytes = self.bytes_max.load(Relaxed).saturating_sub(FRAME_BYTES);
        fit(letter, &Room { head_bytes, value_bytes: None }, then)
    }

    /// The same for a letter that was refused with such a code; nothing when it was not too large, or
    /// cannot be made smaller.
    pub(super) fn fit_less<T>(
        &self,
        code: Code,
        letter: &Outbound<'_>,
        then: impl FnOnce(&Outbound<'_>) -> T,
    ) -> Option<T> {
        let too_large =
            [Code::MessageSizeTooLarge, Code::InvalidMessageSize, Code::MessageBatchTooLarge];
        if !too_large.contains(&code) {
            return None;
        }
        let bytes = bytes_of(letter);
        if bytes + FRAME_BYTES <= self.bytes_max.load(Relaxed) {
            self.bytes_max.store(bytes / 2 + FRAME_BYTES, Relaxed);
        }
        self.fit(letter, |less| (bytes_of(less) < bytes).then(|| then(less)))
    }
}

fn bytes_of(letter: &Outbound<'_>) -> usize {
    head_bytes(letter) + letter.value.map_or(0, <[u8]>::len)
}

#[cfg(test)]
#[path = "record_limit_tests.rs"]
mod tests;

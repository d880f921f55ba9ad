//! How large a batch a topic takes, and a record: the least of what the client takes, what the topic
//! takes as far as the cluster tells, and what the broker has refused.
//!
//! A limit of a topic holds for a whole batch. librdkafka has one limit for all topics, so a producer
//! makes batches that fit the smallest of those that have refused one, and an event that alone is
//! larger than its topic takes goes through the isolated producer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::code::Code;
use super::record::Record;
use crate::base::event::Outbound;
use crate::base::lock::locked;
use crate::dead_letter::fit::{Room, fit, head_bytes};
use crate::dead_letter::writer::KAFKA_HEADER_BYTES;

/// librdkafka's property, and its default.
pub const PROPERTY: &str = "message.max.bytes";
const CLIENT_BYTES_MAX: usize = 1_000_000;
/// The header of a batch, and the lengths of the fields of its record.
const FRAME_BYTES: usize = 160;

#[derive(Debug)]
pub(super) struct RecordLimit {
    client_bytes_max: usize,
    topics: Mutex<BTreeMap<String, TopicLimit>>,
    /// The least limit of the topics that have refused a batch of events.
    batch_bytes_max: AtomicUsize,
}

#[derive(Clone, Copy, Debug, Default)]
struct TopicLimit {
    /// The limit that the cluster names, or half of a dead letter that was refused.
    bytes_max: Option<usize>,
    /// The bytes of the smallest batch of events that was refused.
    refused_bytes: Option<usize>,
}

impl TopicLimit {
    /// Once a batch of events was refused: how large the next may be. What the cluster says is
    /// believed if it is a reason for the refusal.
    fn batch_bytes_max(self) -> Option<usize> {
        let refused = self.refused_bytes?;
        let told = self.bytes_max.filter(|bytes_max| *bytes_max < refused);
        Some(told.unwrap_or(refused / 2).max(1))
    }
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
        let batch_bytes_max = AtomicUsize::new(client_bytes_max);
        RecordLimit { client_bytes_max, topics: Mutex::default(), batch_bytes_max }
    }

    /// Does the client take no event of this size? It would find out only when it has copied the
    /// headers.
    #[inline]
    pub(super) fn is_beyond_client(&self, event: &Outbound<'_>) -> bool {
        event.size_bytes() > self.client_bytes_max + event.topic.len() + event.exchange.len()
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<String, TopicLimit>> {
        locked(&self.topics)
    }

    /// Most bytes of a batch of events that every topic takes, as far as is known.
    #[inline]
    pub(super) fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max.load(Relaxed)
    }

    /// Topics that have refused a batch of events.
    pub(super) fn refusing(&self) -> Vec<String> {
        let topics = self.topics();
        let refusing = topics.iter().filter(|(_, topic)| topic.refused_bytes.is_some());
        refusing.map(|(name, _)| name.clone()).collect()
    }

    /// The cluster says what the topic takes.
    pub(super) fn learn(&self, topic: &str, bytes_max: usize) {
        self.change(topic, |limit| limit.bytes_max = Some(bytes_max));
    }

    /// The topic has refused batches of events, the smallest of which had at most so many bytes.
    pub(super) fn refused(&self, topic: &str, bytes: usize) {
        self.change(topic, |limit| {
            limit.refused_bytes = Some(limit.refused_bytes.map_or(bytes, |least| least.min(bytes)));
        });
        let bytes_max = self.batch_bytes_max();
        tracing::info!(
            topic,
            bytes,
            bytes_max,
            "a topic has refused a batch: the next are smaller"
        );
    }

    fn change(&self, topic: &str, change: impl FnOnce(&mut TopicLimit)) {
        let mut topics = self.topics();
        change(topics.entry(topic.to_owned()).or_default());
        let least = topics.values().filter_map(|topic| topic.batch_bytes_max()).min();
        let bytes_max =
            least.map_or(self.client_bytes_max, |least| least.min(self.client_bytes_max));
        self.batch_bytes_max.store(bytes_max, Relaxed);
    }

    /// Whether the event alone is larger than the batches that its topic takes.
    #[inline]
    pub(super) fn is_exceeded(&self, event: &Outbound<'_>) -> bool {
        let bytes_max = self.batch_bytes_max();
        bytes_max < self.client_bytes_max && framed_bytes(event) > bytes_max && {
            let limit = self.topics().get(event.topic).and_then(|topic| topic.batch_bytes_max());
            limit.is_some_and(|bytes_max| framed_bytes(event) > bytes_max)
        }
    }

    /// Whether the topic takes the event in a batch of its own, as far as is known.
    pub(super) fn has_room_for(&self, event: &Outbound<'_>) -> bool {
        let topic = self.topics().get(event.topic).copied().unwrap_or_default();
        let known = [topic.bytes_max, topic.batch_bytes_max()].into_iter().flatten();
        framed_bytes(event) <= known.fold(self.client_bytes_max, usize::min)
    }

    /// A copy of a dead letter, cut to the limit.
    pub(super) fn fit_dead_letter(&self, letter: &Outbound<'_>, lane: Option<u64>) -> Record {
        let head_bytes = self.letter_bytes_max(letter.topic).saturating_sub(FRAME_BYTES);
        let room = Room { header_bytes: KAFKA_HEADER_BYTES, head_bytes, value_bytes: None };
        fit(letter, &room, |it| Record { is_dead_letter: true, ..Record::copy(it, lane) })
    }

    fn letter_bytes_max(&self, topic: &str) -> usize {
        let known = self.topics().get(topic).and_then(|topic| topic.bytes_max);
        known.map_or(self.client_bytes_max, |known| known.min(self.client_bytes_max))
    }

    /// A smaller copy of a dead letter that was refused with `code`; none when it was not too
    /// large, or cannot be made smaller.
    pub(super) fn cut_dead_letter(&self, code: Code, record: &Record) -> Option<Record> {
        if !record.is_dead_letter || !is_too_large(code) {
            return None;
        }
        record.with_outbound(|letter| {
            let bytes = framed_bytes(letter);
            if bytes <= self.letter_bytes_max(letter.topic) {
                self.learn(letter.topic, (bytes - FRAME_BYTES) / 2 + FRAME_BYTES);
            }
            let smaller = self.fit_dead_letter(letter, record.lane);
            (smaller.with_outbound(framed_bytes) < bytes).then_some(smaller)
        })
    }
}

/// Whether a batch was refused for its size, which says nothing of a single event in it.
pub(super) fn is_too_large(code: Code) -> bool {
    [Code::MessageSizeTooLarge, Code::InvalidMessageSize, Code::MessageBatchTooLarge]
        .contains(&code)
}

/// The size of a batch with this record alone, or a little more.
pub(super) fn framed_bytes(event: &Outbound<'_>) -> usize {
    head_bytes(event, KAFKA_HEADER_BYTES) + event.value.map_or(0, <[u8]>::len) + FRAME_BYTES
}

#[cfg(test)]
#[path = "record_limit_tests.rs"]
mod tests;

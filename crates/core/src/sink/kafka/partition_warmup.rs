//! Which partitions may have many events under way.
//!
//! A broker knows nothing of a fresh producer. If it refuses the first batch of such a producer for
//! a partition, it takes the second batch as if it were the first, and the retry of the first
//! arrives behind it. So until a partition has confirmed an event of this producer, at most one
//! event is under way to it, and others wait here; the window bounds them. A topic counts as one
//! partition until the number of its partitions is known.
//!
//! The broker forgets a producer that has sent nothing to a partition for long, so partitions are closed
//! now and then.
//!
//! Pure: no producer, no clock.

use std::collections::{BTreeMap, BTreeSet};

use super::port::TopicId;
use crate::base::event::Sequence;

/// How many events without a key in a row go to the same partition.
const NEIGHBOURS: Sequence = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionState {
    /// Any number of events may be under way.
    Open,
    /// One event may go: call [`PartitionWarmup::sent_alone`] when it does.
    Idle,
    /// One event is under way, others wait: call [`PartitionWarmup::wait`].
    Busy,
}

#[derive(Debug, Default)]
struct Partition {
    is_open: bool,
    under_way: Option<Sequence>,
    waiting: Vec<Sequence>,
}

#[derive(Debug)]
enum SentTo {
    Partition(i32),
    PartitionOf(Box<[u8]>),
}

#[derive(Debug, Default)]
struct Topic {
    /// All partitions are open.
    is_open: bool,
    count: Option<usize>,
    /// Stands for the partitions that are not known: for all until their number is known and nothing is
    /// under way to one of them, and then for those beyond that number, which were added since.
    unknown: Partition,
    /// From which the partition of the event under way to `unknown` follows once their number is
    /// known.
    unknown_sent_to: Option<SentTo>,
    partitions: Vec<Partition>,
    /// Partitions that have confirmed an event.
    confirmed: BTreeSet<i32>,
    /// Events that were under way when the partitions were forgotten, and their partition if it is known. The
    /// client goes on sending them, so that an event behind one of them would not be the first.
    sent_before: BTreeMap<Sequence, Option<i32>>,
    /// How many of them each partition has.
    sent_before_by_partition: BTreeMap<Option<i32>, usize>,
    /// How often its partitions have changed.
    changes: u32,
    /// The id that the cluster has given the topic; 0 until it is known.
    id: u128,
    /// A broker could not be reached after the topic had confirmed events and before it was described: the
    /// description may be that of another topic.
    is_in_doubt: bool,
}

#[derive(Debug, Default)]
pub(super) struct PartitionWarmup {
    topics: Vec<Topic>,
    /// Events under way to partitions that are not open.
    under_way: BTreeMap<Sequence, TopicId>,
    /// Topics whose partitions must be counted.
    uncounted: Vec<TopicId>,
}

impl PartitionWarmup {
    /// Whether all partitions of the topic are open, and this is one of them.
    #[inline]
    pub(super) fn is_open(&self, topic: TopicId, partition: Option<i32>) -> bool {
        let is_among = |topic: &Topic| topic.index(partition).is_some();
        self.topics.get(topic).is_some_and(|topic| topic.is_open && is_among(topic))
    }

    /// Whether nothing is under way to a partition that is not open.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// How often the partitions of the topic have changed.
    #[inline]
    pub(super) fn changes(&self, topic: TopicId) -> u32 {
        self.topics.get(topic).map_or(0, |topic| topic.changes)
    }

    /// How many partitions the topic has, once events are sent by that number.
    #[inline]
    pub(super) fn partitions(&self, topic: TopicId) -> Option<i32> {
        let count = self.topics.get(topic).map_or(0, |topic| topic.partitions.len());
        i32::try_from(count).ok().filter(|count| *count > 0)
    }

    /// The partition for an event that may go to any: the one of its number, or the next that is not busy.
    /// Neighbours go to the same one, so that they are sent together. librdkafka would choose among
    /// partitions that were added since, too.
    #[inline]
    pub(super) fn any_partition(&self, topic: TopicId, sequence: Sequence) -> Option<i32> {
        let topic = self.topics.get(topic)?;
        let count = topic.partitions.len();
        let first = usize::try_from(sequence / NEIGHBOURS).ok()?.checked_rem(count)?;
        let mut all = (first..count).chain(0..first);
        let is_busy = |index| topic.state(Some(index)) == PartitionState::Busy;
        let chosen = all.find(|index| !is_busy(*index)).unwrap_or(first);
        i32::try_from(chosen).ok()
    }

    pub(super) fn state(&mut self, topic: TopicId, partition: Option<i32>) -> PartitionState {
        let topic = self.topic(topic);
        topic.state(topic.index(partition))
    }

    /// An event was sent to a partition that was [`PartitionState::Idle`].
    pub(super) fn sent_alone(
        &mut self,
        topic: TopicId,
        to: Option<i32>,
        key: Option<&[u8]>,
        sequence: Sequence,
    ) {
        let is_unknown = self.topic(topic).index(to).is_none();
        self.partition(topic, to).under_way = Some(sequence);
        self.under_way.insert(sequence, topic);
        if is_unknown {
            // A partitioner may choose any partition for an empty key.
            let key = key.filter(|key| !key.is_empty()).map(Box::from);
            self.topics[topic].unknown_sent_to =
                to.map(SentTo::Partition).or(key.map(SentTo::PartitionOf));
            self.uncounted.push(topic);
        }
    }

    /// An event waits until the partition has answered for the one that is under way.
    pub(super) fn wait(&mut self, topic: TopicId, to: Option<i32>, sequence: Sequence) {
        self.partition(topic, to).waiting.push(sequence);
    }

    /// An event was confirmed by that partition, or has failed. Returns the events that have waited
    /// for it, in order; they must be admitted anew.
    pub(super) fn answered(
        &mut self,
        sequence: Sequence,
        confirmed_by: Option<i32>,
    ) -> Vec<Sequence> {
        let Some(id) = self.under_way.remove(&sequence) else { return Vec::new() };
        let topic = &mut self.topics[id];
        if let Some(partition) = topic.sent_before.remove(&sequence) {
            return topic.release_held_up(partition);
        }
        let mut waited = Vec::new();
        let mut all = std::iter::once(&mut topic.unknown).chain(&mut topic.partitions);
        if let Some(partition) = all.find(|it| it.under_way == Some(sequence)) {
            partition.under_way = None;
            waited = std::mem::take(&mut partition.waiting);
            topic.confirmed.extend(confirmed_by);
            topic.update();
        }
        waited
    }

    /// Whether the topic may have been deleted and created again without a sign of that: its partitions know
    /// nothing of this producer, which may take them for those of before.
    pub(super) fn is_another(&mut self, topic: TopicId, id: u128) -> bool {
        let Some(topic) = self.topics.get_mut(topic) else { return false };
        let is_in_doubt = std::mem::take(&mut topic.is_in_doubt);
        // Brokers that give no ids settle no doubt later either.
        if id == 0 {
            return false;
        }
        let before = std::mem::replace(&mut topic.id, id);
        before != id && (before != 0 || is_in_doubt)
    }

    /// A broker could not be reached. The client does not report that a connection has ended, only that none can
    /// be made. An event that no partition has confirmed may still be the first one of another topic.
    pub(super) fn broker_unreachable(&mut self) {
        for topic in self.topics.iter_mut().filter(|it| it.id == 0 && it.count.is_none()) {
            topic.is_in_doubt |= !topic.confirmed.is_empty();
        }
    }

    /// Whether the topic has fewer partitions than before, and so was created again:
    /// [`PartitionWarmup::forget`] them first.
    pub(super) fn has_fewer(&self, topic: TopicId, count: usize) -> bool {
        self.topics.get(topic).is_some_and(|topic| count < topic.partitions.len())
    }

    /// The topic has `count` partitions now, of which `partition_of` chooses the one of a key.
    /// Returns the events that have waited for this number, or for partitions that may not be
    /// theirs any more.
    pub(super) fn counted(
        &mut self,
        topic: TopicId,
        count: usize,
        partition_of: impl FnOnce(&[u8]) -> i32,
    ) -> Vec<Sequence> {
        let Some(topic) = self.topics.get_mut(topic) else { return Vec::new() };
        // Its partition may have no leader, and the others must not wait for that.
        let to = topic.unknown_sent_to.as_ref().filter(|_| topic.unknown.under_way.is_some());
        let to = to.map(|to| match to {
            SentTo::Partition(partition) => *partition,
            SentTo::PartitionOf(key) => partition_of(key),
        });
        let to = to.and_then(|to| usize::try_from(to).ok()).filter(|to| *to < count);
        let moved = to.and_then(|to| Some((to, topic.unknown.under_way.take()?)));
        if topic.partitions.is_empty() || topic.unknown.under_way.is_none() {
            topic.count = Some(count);
        }
        if topic.unknown.under_way.is_some() || topic.partitions.len() == count {
            return Vec::new();
        }
        topic.changes += u32::from(!topic.partitions.is_empty());
        let waited = topic.take_waiting();
        topic.partitions.resize_with(count, Partition::default);
        if let Some((to, sequence)) = moved {
            topic.partitions[to].under_way = Some(sequence);
        }
        topic.update();
        waited
    }

    /// The partitions of the topic have changed: discards what is known of them, except of the events under
    /// way to them. Returns the events that have waited for them.
    pub(super) fn forget(
        &mut self,
        id: TopicId,
        under_way: impl Iterator<Item = (Sequence, Option<i32>)>,
    ) -> Vec<Sequence> {
        let Some(topic) = self.topics.get_mut(id) else { return Vec::new() };
        // Many events may fail for the same reason.
        if topic.is_forgotten() {
            return Vec::new();
        }
        // Its id and the doubt stay: the next description may be that of another topic than the client has sent to.
        let anew = Topic {
            changes: topic.changes + 1,
            id: topic.id,
            is_in_doubt: topic.is_in_doubt,
            ..Topic::default()
        };
        let waited = std::mem::replace(topic, anew).take_waiting();
        for (sequence, partition) in under_way {
            self.under_way.insert(sequence, id);
            topic.sent_before.insert(sequence, partition);
            *topic.sent_before_by_partition.entry(partition).or_default() += 1;
        }
        self.uncounted.push(id);
        waited
    }

    /// Closes all partitions: each must confirm an event again.
    pub(super) fn close(&mut self) {
        for topic in &mut self.topics {
            topic.confirmed.clear();
            // What is under way to an unknown partition may be at any of them.
            if !topic.partitions.is_empty() {
                topic.update();
            }
        }
    }

    /// Topics whose partitions must be counted, each once. With `again` that includes those that
    /// were counted, because partitions may have been added, and those whose count has not come.
    pub(super) fn topics_to_count(&mut self, again: bool) -> Vec<TopicId> {
        let mut topics = std::mem::take(&mut self.uncounted);
        let is_unknown = |topic: &Topic| topic.count.is_none() || topic.has_more();
        topics.retain(|id| is_unknown(&self.topics[*id]));
        if again {
            let is_used = |topic: &Topic| {
                topic.count.is_some()
                    || topic.unknown.under_way.is_some()
                    || !topic.sent_before.is_empty()
            };
            let used = self.topics.iter().enumerate().filter(|(_, topic)| is_used(topic));
            topics.extend(used.map(|(id, _)| id));
        }
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    fn topic(&mut self, topic: TopicId) -> &mut Topic {
        if self.topics.len() <= topic {
            self.topics.resize_with(topic + 1, Topic::default);
        }
        &mut self.topics[topic]
    }

    fn partition(&mut self, topic: TopicId, partition: Option<i32>) -> &mut Partition {
        let topic = self.topic(topic);
        match topic.index(partition) {
            Some(index) => &mut topic.partitions[index],
            None => &mut topic.unknown,
        }
    }
}

impl Topic {
    /// The index of a partition that is known.
    #[inline]
    fn index(&self, partition: Option<i32>) -> Option<usize> {
        let index = usize::try_from(partition?).ok()?;
        (index < self.partitions.len()).then_some(index)
    }

    #[inline]
    fn state(&self, index: Option<usize>) -> PartitionState {
        let partition = index.map_or(&self.unknown, |index| &self.partitions[index]);
        if partition.is_open {
            PartitionState::Open
        } else if partition.under_way.is_some() || self.is_held_up(index) {
            PartitionState::Busy
        } else {
            PartitionState::Idle
        }
    }

    /// Whether an event was sent to a partition beyond those that were counted.
    fn has_more(&self) -> bool {
        let last = self.confirmed.last().and_then(|last| usize::try_from(*last).ok());
        let is_beyond = last.is_some_and(|last| last >= self.partitions.len());
        !self.partitions.is_empty() && (self.unknown.under_way.is_some() || is_beyond)
    }

    /// Whether nothing is known of the partitions, and nothing was sent since it was forgotten.
    fn is_forgotten(&self) -> bool {
        let is_counted = self.count.is_some() || !self.partitions.is_empty();
        !is_counted && self.confirmed.is_empty() && self.unknown.under_way.is_none()
    }

    /// Whether an event of before may be under way to the partition.
    fn is_held_up(&self, index: Option<usize>) -> bool {
        let Some(index) = index else { return !self.sent_before.is_empty() };
        let is_there = |partition| self.sent_before_by_partition.contains_key(&partition);
        is_there(None) || i32::try_from(index).is_ok_and(|index| is_there(Some(index)))
    }

    /// An event of before was answered, which was under way to this partition. Returns the events that have
    /// waited for it.
    fn release_held_up(&mut self, partition: Option<i32>) -> Vec<Sequence> {
        let mut waited = Vec::new();
        if let Some(count) = self.sent_before_by_partition.get_mut(&partition) {
            *count -= 1;
            if *count > 0 {
                return waited;
            }
        }
        self.sent_before_by_partition.remove(&partition);
        if !self.is_held_up(None) {
            waited.append(&mut self.unknown.waiting);
        }
        for index in 0..self.partitions.len() {
            if !self.is_held_up(Some(index)) {
                waited.append(&mut self.partitions[index].waiting);
            }
        }
        waited
    }

    fn take_waiting(&mut self) -> Vec<Sequence> {
        let all = std::iter::once(&mut self.unknown).chain(&mut self.partitions);
        all.flat_map(|partition| std::mem::take(&mut partition.waiting)).collect()
    }

    /// Opens the partitions that have confirmed an event, once their number is known.
    fn update(&mut self) {
        let Some(count) = self.count else { return };
        if self.partitions.is_empty() {
            self.partitions.resize_with(count, Partition::default);
        }
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let has_confirmed = i32::try_from(index).is_ok_and(|it| self.confirmed.contains(&it));
            // What is under way may be at another partition: it was sent before they were counted.
            partition.is_open = has_confirmed && partition.under_way.is_none();
        }
        self.is_open = self.partitions.iter().all(|partition| partition.is_open);
    }
}

#[cfg(test)]
#[path = "partition_warmup_tests.rs"]
mod tests;

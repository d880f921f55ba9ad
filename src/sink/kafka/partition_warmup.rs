//! Which partitions may take many events at once.
//!
//! A broker knows nothing of a fresh producer: where the first batch at a partition is refused, it
//! takes the second one as if it were the first, and what is then sent again of the first arrives
//! behind it. So until a partition has confirmed an event of this producer, one event at most is
//! under way to it, and others wait here. A topic is one partition until it is known how many it
//! has.
//!
//! Pure: no producer, no clock.

use std::collections::{BTreeSet, HashMap};

use crate::base::event::Sequence;
use crate::sink::kafka::producer_ffi::TopicId;
use crate::sink::key_lanes::Item;

/// What waits here is a copy, and the next one is made when it goes on: of a whole window that
/// would be a second one in memory.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// What an event meets at the gate of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionState {
    /// The partition is open.
    Open,
    /// It may go alone: call [`PartitionWarmup::flies`] when it does.
    Alone,
    /// It has to wait: call [`PartitionWarmup::wait`].
    Closed,
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) struct Landed<T> {
    /// What has waited, in order: it is to be handed over anew.
    pub(super) waited: Vec<(Sequence, T)>,
    /// Somebody must ask how many partitions this topic has.
    pub(super) ask: Option<TopicId>,
}

#[derive(Debug)]
struct Gate<T> {
    open: bool,
    flying: Option<Sequence>,
    waiting: Vec<(Sequence, T)>,
}

#[derive(Debug)]
struct Topic<T> {
    /// Every partition is open.
    open: bool,
    /// Empty until their number is known and `whole` has nothing under way.
    partitions: Vec<Gate<T>>,
    count: Option<usize>,
    /// All of the topic, before that.
    whole: Gate<T>,
    /// Partitions that have confirmed something, before that.
    seen: BTreeSet<i32>,
}

/// Topics with a partition that is not open.
#[derive(Debug)]
pub(super) struct PartitionWarmup<T> {
    topics: Vec<Topic<T>>,
    flying: HashMap<Sequence, TopicId>,
    waiting_bytes: usize,
}

impl<T> Default for Gate<T> {
    fn default() -> Gate<T> {
        Gate { open: false, flying: None, waiting: Vec::new() }
    }
}

impl<T> Default for Topic<T> {
    fn default() -> Topic<T> {
        let (partitions, whole) = (Vec::new(), Gate::default());
        Topic { open: false, partitions, count: None, whole, seen: BTreeSet::new() }
    }
}

impl<T> Default for PartitionWarmup<T> {
    fn default() -> PartitionWarmup<T> {
        PartitionWarmup { topics: Vec::new(), flying: HashMap::new(), waiting_bytes: 0 }
    }
}

impl<T: Item> PartitionWarmup<T> {
    /// Are all partitions of the topic open?
    pub(super) fn is_open(&self, topic: TopicId) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.open)
    }

    /// Is nothing under way that goes alone?
    pub(super) fn is_idle(&self) -> bool {
        self.flying.is_empty()
    }

    /// Does so much wait that nothing more must come?
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting_bytes >= WAITING_BYTES_MAX
    }

    /// How many partitions the topic has, where that matters by now.
    pub(super) fn partitions(&self, topic: TopicId) -> Option<i32> {
        let count = self.topics.get(topic).map_or(0, |topic| topic.partitions.len());
        i32::try_from(count).ok().filter(|count| *count > 0)
    }

    /// May an event go to that partition?
    pub(super) fn pass(&mut self, topic: TopicId, partition: Option<i32>) -> PartitionState {
        match self.gate(topic, partition) {
            // No such partition: the producer will say so.
            None => PartitionState::Open,
            Some(gate) if gate.open => PartitionState::Open,
            Some(gate) if gate.flying.is_none() => PartitionState::Alone,
            Some(_) => PartitionState::Closed,
        }
    }

    /// An event goes alone.
    pub(super) fn flies(&mut self, topic: TopicId, partition: Option<i32>, sequence: Sequence) {
        if let Some(gate) = self.gate(topic, partition) {
            gate.flying = Some(sequence);
            self.flying.insert(sequence, topic);
        }
    }

    /// An event waits until that is answered.
    pub(super) fn wait(
        &mut self,
        topic: TopicId,
        partition: Option<i32>,
        sequence: Sequence,
        item: T,
    ) {
        self.waiting_bytes += item.size_bytes();
        if let Some(gate) = self.gate(topic, partition) {
            gate.waiting.push((sequence, item));
        }
    }

    /// What has waited goes on.
    fn leave(&mut self, waited: Vec<(Sequence, T)>) -> Vec<(Sequence, T)> {
        self.waiting_bytes -= waited.iter().map(|(_, item)| item.size_bytes()).sum::<usize>();
        waited
    }

    /// An event was answered for: by that partition, or by a failure.
    pub(super) fn landed(&mut self, sequence: Sequence, confirmed_by: Option<i32>) -> Landed<T> {
        let mut landed = Landed { waited: Vec::new(), ask: None };
        let Some(id) = self.flying.remove(&sequence) else { return landed };
        let topic = &mut self.topics[id];
        if topic.whole.flying == Some(sequence) {
            topic.whole.flying = None;
            topic.seen.extend(confirmed_by);
            landed.ask = (confirmed_by.is_some() && topic.count.is_none()).then_some(id);
            topic.divide();
            landed.waited = std::mem::take(&mut topic.whole.waiting);
        }
        let mut gates = topic.partitions.iter_mut();
        if let Some(gate) = gates.find(|gate| gate.flying == Some(sequence)) {
            gate.flying = None;
            gate.open = confirmed_by.is_some();
            topic.seen.extend(confirmed_by);
            landed.waited = std::mem::take(&mut gate.waiting);
            topic.open = topic.partitions.iter().all(|gate| gate.open);
        }
        landed.waited = self.leave(landed.waited);
        landed
    }

    /// A topic has so many partitions, perhaps others than it had. Hands out what has waited for
    /// that, and what has waited for partitions that are not its own any more.
    pub(super) fn counted(&mut self, topic: TopicId, count: i32) -> Vec<(Sequence, T)> {
        let Some(topic) = self.topics.get_mut(topic) else { return Vec::new() };
        topic.count = usize::try_from(count).ok().filter(|count| *count > 0);
        let same = topic.count.is_none_or(|count| count == topic.partitions.len());
        if topic.whole.flying.is_some() || same {
            return Vec::new();
        }
        let waited = topic.give_up_waiting();
        topic.divide();
        self.leave(waited)
    }

    /// A topic has not the partitions that it was thought to have: it is as on the first day. Hands
    /// out what has waited for them.
    pub(super) fn forget(&mut self, topic: TopicId) -> Vec<(Sequence, T)> {
        let Some(topic) = self.topics.get_mut(topic) else { return Vec::new() };
        let waited = std::mem::take(topic).give_up_waiting();
        self.leave(waited)
    }

    /// Topics whose number of partitions is known: it may change.
    pub(super) fn divided(&self) -> impl Iterator<Item = TopicId> {
        let divided = |(_, topic): &(TopicId, &Topic<T>)| topic.count.is_some();
        self.topics.iter().enumerate().filter(divided).map(|(id, _)| id)
    }

    fn gate(&mut self, topic: TopicId, partition: Option<i32>) -> Option<&mut Gate<T>> {
        while self.topics.len() <= topic {
            self.topics.push(Topic::default());
        }
        let topic = &mut self.topics[topic];
        if topic.partitions.is_empty() {
            return Some(&mut topic.whole);
        }
        partition.and_then(|it| topic.partitions.get_mut(usize::try_from(it).ok()?))
    }
}

impl<T> Topic<T> {
    fn give_up_waiting(&mut self) -> Vec<(Sequence, T)> {
        let gates = std::iter::once(&mut self.whole).chain(&mut self.partitions);
        gates.flat_map(|gate| std::mem::take(&mut gate.waiting)).collect()
    }

    /// From one gate to one for each partition, once their number is known.
    fn divide(&mut self) {
        let Some(count) = self.count else { return };
        self.partitions.resize_with(count, Gate::default);
        for (partition, gate) in self.partitions.iter_mut().enumerate() {
            gate.open = i32::try_from(partition).is_ok_and(|it| self.seen.contains(&it));
        }
        self.open = self.partitions.iter().all(|gate| gate.open);
    }
}

#[cfg(test)]
#[path = "partition_warmup_tests.rs"]
mod tests;

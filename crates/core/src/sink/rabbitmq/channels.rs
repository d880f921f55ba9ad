//! The channels of one connection, and on which of them a message is published. Pure: no socket,
//! time is an argument.
//!
//! A queue that confirms nothing stops the channel that publishes to it, and by that channel the
//! connection (seen with a quorum queue of RabbitMQ 3.10):
//!
//! * Before its first message for the queue the channel waits until it is registered there, at most
//!   65 s, and then nacks the message. What is behind it on this channel waits, too.
//! * With more than 32 messages unconfirmed there, the channel grants the connection no credit
//!   (`quorum_commands_soft_limit`). It still publishes to others, and the connection is read, until
//!   200 to 400 further messages have come for the channel (`credit_flow_default_credit`). Then the
//!   connection is read no more, whatever is sent.
//!
//! So a channel carries the messages of one destination at a time, which is an exchange with a
//! routing key, and none is published far behind an unconfirmed one. Then a silent queue stops
//! nothing but its own channel.
//!
//! When there is no channel left, destinations share those that answer. What a destination has in
//! flight may be all that its queue will ever be sent, so it has at most one message in flight on a
//! channel of others, and is given none there while it has any on its own. The channel of others may
//! have become silent: the next messages of the destination go to the next idle channel, whether the
//! message there is answered or not. A message of others on its own channel may have no answer
//! either: behind that the destination publishes only while no channel is idle.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::connection_loss::ConnectionLoss;
use super::in_flight::{AnsweredPublish, DestinationHash, PublishOutcome, PublishesInFlight};
use super::message::AmqpMessage;
use crate::base::event::Sequence;
use crate::base::hash::HashMap;
use crate::base::random::Salt;
use crate::mutants::{Mutant, on};

/// Channels of one connection, unless the broker allows fewer.
pub(super) const CHANNELS_MAX: usize = 64;
/// How many messages a channel may have been sent from its oldest unconfirmed one on: fewer than the
/// 200 with which RabbitMQ still reads the connection.
const SPAN_MAX: u64 = 128;
/// The same before the destination has answered on the channel for the first time.
const UNPROVEN_SPAN_MAX: u64 = 16;
/// When there is no channel left, one that has answered within this time is shared.
const SHARED_FOR: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct PublishChannel {
    number: u16,
    /// Whose messages are in flight on it, or were last.
    destination: Option<DestinationHash>,
    /// It has answered since this destination has it.
    is_proven: bool,
    answered_at: Option<Instant>,
    in_flight: PublishesInFlight,
}

impl PublishChannel {
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// How many messages it can take.
    fn room(&self) -> u64 {
        let span_max = if self.is_proven { SPAN_MAX } else { UNPROVEN_SPAN_MAX };
        span_max.saturating_sub(self.in_flight.span())
    }

    /// The destination has it, and no message of another is in front of those of the destination.
    fn is_led_by(&self, destination: DestinationHash) -> bool {
        self.destination == Some(destination) && self.in_flight.first() == Some(destination)
    }

    /// Whether it can be given to any destination.
    fn is_shared(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < SHARED_FOR;
        self.is_idle() || self.answered_at.is_some_and(is_recent)
    }
}

/// For which channel a destination waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AwaitedChannel {
    /// An idle one, or one that is shared.
    Shared,
    /// An idle one: it has messages in flight.
    Idle,
}

/// A place in the queue of those that wait for the same.
type QueuePlace = (AwaitedChannel, u64);

/// Messages of one destination that wait for room.
#[derive(Debug, Default)]
struct Waiting {
    messages: BTreeSet<Sequence>,
    place: Option<QueuePlace>,
}

#[derive(Debug, Default)]
pub(super) struct PublishChannels {
    channels: Vec<PublishChannel>,
    /// The indexes of the channels of what was sent and is not written, in its order.
    unwritten: VecDeque<usize>,
    /// The salt of the hashes of destinations.
    salt: Salt,
    waiting: BTreeMap<DestinationHash, Waiting>,
    /// Destinations of `waiting` that found no channel.
    queue: BTreeMap<QueuePlace, DestinationHash>,
    /// How many places were given.
    places: u64,
    /// How many messages each destination has in flight, on all channels.
    in_flight_of: HashMap<DestinationHash, usize>,
    /// Destinations of what was answered since the last release.
    answered: BTreeSet<DestinationHash>,
}

impl PublishChannels {
    pub(super) fn new(salt: Salt) -> PublishChannels {
        PublishChannels { salt, ..PublishChannels::default() }
    }

    pub(super) fn add(&mut self, number: u16) {
        self.channels.push(PublishChannel {
            number,
            destination: None,
            is_proven: false,
            answered_at: None,
            in_flight: PublishesInFlight::default(),
        });
    }

    /// Whether the next destination needs one more channel.
    pub(super) fn are_all_busy(&self) -> bool {
        !self.channels.iter().any(PublishChannel::is_idle)
    }

    /// Publishes the message on a channel, and returns its number. If there is no room, the message
    /// waits until [`PublishChannels::release`] returns it.
    pub(super) fn publish(
        &mut self,
        sequence: Sequence,
        message: &Arc<AmqpMessage>,
        now: Instant,
    ) -> Option<u16> {
        let destination = self.destination(message);
        let Some(index) = self.channel_for(destination, now) else {
            self.waiting.entry(destination).or_default().messages.insert(sequence);
            return None;
        };
        let channel = &mut self.channels[index];
        if channel.is_idle() && channel.destination != Some(destination) {
            (channel.destination, channel.is_proven) = (Some(destination), false);
        }
        channel.in_flight.add(sequence, destination, Arc::clone(message), now);
        self.unwritten.push_back(index);
        *self.in_flight_of.entry(destination).or_default() += 1;
        Some(channel.number)
    }

    /// If a message for the same destination is in flight, lets this one wait until [`PublishChannels::release`]
    /// returns it. Returns whether it waits.
    pub(super) fn wait_behind(&mut self, sequence: Sequence, message: &AmqpMessage) -> bool {
        let destination = self.destination(message);
        let is_behind = self.in_flight_of.contains_key(&destination);
        if is_behind {
            self.waiting.entry(destination).or_default().messages.insert(sequence);
        }
        is_behind
    }

    /// Notes that the connection has taken so many more of the messages.
    pub(super) fn note_written(&mut self, count: usize, now: Instant) {
        for index in self.unwritten.drain(..count.min(self.unwritten.len())) {
            self.channels[index].in_flight.note_written(now);
        }
    }

    fn destination(&self, message: &AmqpMessage) -> DestinationHash {
        self.salt.hash_one(message.destination())
    }

    fn channel_for(&mut self, destination: DestinationHash, now: Instant) -> Option<usize> {
        let is_own = |it: &PublishChannel| it.destination == Some(destination);
        let is_led = |it: &PublishChannel| it.is_led_by(destination);
        let position =
            |which: &dyn Fn(&PublishChannel) -> bool| self.channels.iter().position(which);
        if let Some(index) = position(&|it| is_led(it) && it.room() > 0) {
            return Some(index);
        }
        // A silent destination gets no further channel before it has answered on its last.
        if self.channels.iter().any(|it| is_led(it) && !it.is_proven) {
            return None;
        }
        let found = position(&|it| is_own(it) && it.is_idle())
            .or_else(|| position(&|it| it.destination.is_none()))
            .or_else(|| position(&PublishChannel::is_idle))
            .or_else(|| position(&|it| is_own(it) && it.room() > 0));
        if found.is_some() {
            return found;
        }
        // With messages in flight it waits for an answer to one of those, or for an idle channel: the only one
        // may be on a channel of others, which does not answer any more.
        if self.in_flight_of.contains_key(&destination) {
            self.enqueue(destination, AwaitedChannel::Idle);
            return None;
        }
        let found = position(&|it| it.is_shared(now) && it.room() > 0);
        if found.is_none() {
            self.enqueue(destination, AwaitedChannel::Shared);
        }
        found
    }

    /// Whether the next message of the destination goes to an idle channel, if there is one.
    fn takes_idle(&self, destination: DestinationHash) -> bool {
        let keeps = |it: &PublishChannel| it.room() > 0 || !it.is_proven;
        !self.channels.iter().any(|it| it.is_led_by(destination) && keeps(it))
    }

    /// A destination keeps its place, and has only one.
    fn enqueue(&mut self, destination: DestinationHash, awaited: AwaitedChannel) {
        let waiting = self.waiting.entry(destination).or_default();
        if waiting.place.is_some_and(|(before, _)| before == awaited) {
            return;
        }
        let place = (awaited, self.places);
        self.places += 1;
        if let Some(before) = waiting.place.replace(place) {
            self.queue.remove(&before);
        }
        self.queue.insert(place, destination);
    }

    /// Takes the next one out of the queue.
    fn dequeue(&mut self, awaited: AwaitedChannel) -> Option<DestinationHash> {
        let mut places = self.queue.range((awaited, 0)..=(awaited, u64::MAX));
        let (&place, &destination) = places.next()?;
        self.queue.remove(&place);
        self.waiting.get_mut(&destination)?.place = None;
        Some(destination)
    }

    /// Returns the publishes that the answers decide, and why no more will follow if one of them makes no
    /// sense.
    pub(super) fn take_answers(
        &mut self,
        answers: Vec<(u16, Answer)>,
        now: Instant,
    ) -> (Vec<AnsweredPublish>, Option<ConnectionLoss>) {
        let mut answered = Vec::with_capacity(answers.len());
        for (number, answer) in answers {
            let known = answered.len();
            let mut channels = self.channels.iter_mut();
            let is_meant =
                |it: &&mut PublishChannel| it.number == number || on(Mutant::RabbitChannelIgnored);
            let Some(channel) = channels.find(is_meant) else { continue };
            if let Err(loss) = channel.in_flight.take_answer(answer, &mut answered) {
                self.close();
                return (answered, Some(loss));
            }
            // A channel that gives up waiting for a queue nacks.
            let took = |publish: &AnsweredPublish| publish.outcome != PublishOutcome::Nacked;
            if answered[known..].iter().any(took) {
                (channel.is_proven, channel.answered_at) = (true, Some(now));
            }
            answered[known..].iter().for_each(|publish| self.note_answered(publish.destination));
        }
        (answered, None)
    }

    /// Forgets the channels: answers behind a close count no more.
    pub(super) fn close(&mut self) {
        self.channels.clear();
        self.unwritten.clear();
    }

    /// Notes that a message is in flight no more: others for its destination may find room.
    fn note_answered(&mut self, destination: DestinationHash) {
        if let Entry::Occupied(mut count) = self.in_flight_of.entry(destination) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if !self.waiting.is_empty() {
            self.answered.insert(destination);
        }
    }

    /// Takes out the messages that may find room now.
    pub(super) fn release(&mut self, now: Instant) -> Vec<Sequence> {
        let mut released = Vec::new();
        if self.waiting.is_empty() {
            return released;
        }
        for destination in std::mem::take(&mut self.answered) {
            let own = self.channels.iter().filter(|it| it.destination == Some(destination));
            // One more channel may be idle.
            let room = own.map(PublishChannel::room).sum::<u64>() + UNPROVEN_SPAN_MAX;
            self.release_some(destination, room, &mut released);
        }
        let shared = self.channels.iter().filter(|it| it.is_shared(now));
        let mut room = shared.map(PublishChannel::room).sum::<u64>();
        while room > 0
            && let Some(destination) = self.dequeue(AwaitedChannel::Shared)
        {
            // It may have found a channel for other messages since.
            if self.in_flight_of.contains_key(&destination) {
                self.enqueue(destination, AwaitedChannel::Idle);
                continue;
            }
            room -= 1;
            self.release_some(destination, UNPROVEN_SPAN_MAX, &mut released);
        }
        let mut idle = self.channels.iter().filter(|it| it.is_idle()).count();
        while idle > 0
            && let Some(destination) = self.dequeue(AwaitedChannel::Idle)
        {
            idle -= usize::from(self.takes_idle(destination));
            self.release_some(destination, UNPROVEN_SPAN_MAX, &mut released);
        }
        released
    }

    fn release_some(
        &mut self,
        destination: DestinationHash,
        room: u64,
        released: &mut Vec<Sequence>,
    ) {
        let Some(waiting) = self.waiting.get_mut(&destination) else { return };
        released.extend((0..room).map_while(|_| waiting.messages.pop_first()));
        if waiting.messages.is_empty()
            && let Some(Waiting { place: Some(place), .. }) = self.waiting.remove(&destination)
        {
            self.queue.remove(&place);
        }
    }

    /// Takes out all that wait: the connection is lost.
    pub(super) fn release_all(&mut self) -> Vec<Sequence> {
        self.queue.clear();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        waiting.flat_map(|waiting| waiting.messages).collect()
    }

    /// When the oldest publish in flight was sent.
    pub(super) fn sent_since(&self) -> Option<Instant> {
        self.channels.iter().filter_map(|it| it.in_flight.sent_since()).min()
    }

    /// The publish in flight that was written first, and when.
    pub(super) fn oldest(&self) -> Option<(Sequence, &AmqpMessage, Instant)> {
        let oldest = self.channels.iter().filter_map(|it| it.in_flight.oldest());
        oldest.min_by_key(|(.., written_at)| *written_at)
    }

    /// The publishes that were written at least this long ago.
    pub(super) fn written_for(
        &self,
        length: Duration,
        now: Instant,
    ) -> impl Iterator<Item = Sequence> {
        self.channels.iter().flat_map(move |it| it.in_flight.written_for(length, now))
    }
}

#[cfg(test)]
#[path = "channels_tests.rs"]
mod tests;

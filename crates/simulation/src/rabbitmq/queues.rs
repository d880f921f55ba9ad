//! Outcome of a message that the broker has read: it is stored by a queue, returned, refused, or
//! the channel is closed over it; and what the publisher is answered.

use walrelay_core::sink::rabbitmq::answer::{Answer, ReturnedMessage};
use walrelay_core::sink::rabbitmq::connection_loss::ConnectionLoss;
use walrelay_core::sink::rabbitmq::port::AmqpEvent;

use super::connection::{Phase, Publish, Unanswered};
use super::server::{Forbidden, Mood, QUEUES, Server, Trouble, below};
use crate::broker::Record;

/// So long a channel waits for a queue that does not know it, and then nacks.
const REGISTERS_WITHIN_US: u64 = 5_000_000;
/// A relay looks after a second whether it may publish where it was refused.
const ASKED_AGAIN_US: u64 = 500_000;

impl Server {
    /// A channel takes a message.
    pub(super) fn take(&mut self, id: u64, number: u16, publish: Publish, now_us: u64, mood: Mood) {
        let is_silent = self.is_silent(publish.record.topic);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(channel) = connection.channels.get_mut(&number).filter(|it| !it.is_closed) else {
            return;
        };
        let is_known = channel.queues.contains(publish.record.topic);
        if !channel.held.is_empty() || is_silent && !is_known {
            if channel.held.is_empty() {
                channel.held_since_us = now_us;
            }
            return channel.held.push_back(publish);
        }
        self.route(id, number, publish, now_us, mood);
    }

    /// Its queue stores and confirms nothing.
    pub(super) fn is_silent(&self, topic: &str) -> bool {
        self.queues.get(topic).is_some_and(|queue| queue.trouble == Some(Trouble::Silent))
    }

    /// The reason for which the channel of a message to a stream that has failed is closed.
    fn stream_failure(&self, topic: &str) -> Option<(u16, String)> {
        let queue = self.queues.get(topic).filter(|queue| queue.trouble == Some(Trouble::Failed));
        let text = format!("RESOURCE_ERROR - Stream not found for queue '{topic}' in vhost '/'");
        queue.map(|_| (506, text))
    }

    /// A channel that waits for a queue goes on when that answers, or gives up.
    pub(super) fn release_held(&mut self, id: u64, now_us: u64, mood: Mood) {
        if self.connections.get(&id).is_none_or(|it| !it.has_held()) {
            return;
        }
        let mut last = 0;
        while let Some(number) = self.next_channel(id, last) {
            last = number;
            while let Some(channel) =
                self.connections.get(&id).and_then(|it| it.channels.get(&number))
                && let Some(first) = channel.held.front()
            {
                let is_silent = self.is_silent(first.record.topic);
                let is_known = channel.queues.contains(first.record.topic);
                let waited = now_us.saturating_sub(channel.held_since_us);
                if is_silent && !is_known && waited < REGISTERS_WITHIN_US {
                    break;
                }
                let Some(publish) = self.next_held(id, number) else { break };
                if is_silent && !is_known {
                    self.refused(&publish.record.id);
                    self.nack_held(id, number, now_us);
                } else {
                    self.route(id, number, publish, now_us, mood);
                }
            }
        }
    }

    fn nack_held(&mut self, id: u64, number: u16, now_us: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(channel) = connection.channels.get_mut(&number) else { return };
        self.counts.held += 1;
        channel.tag += 1;
        channel.held_since_us = now_us;
        channel.unanswered.insert(channel.tag, Unanswered { acked: Some(false), read_us: now_us });
    }

    /// A message goes to its queue, or back.
    pub(super) fn route(
        &mut self,
        id: u64,
        number: u16,
        publish: Publish,
        now_us: u64,
        mood: Mood,
    ) {
        let Publish { exchange, record } = publish;
        let chance = if mood.refuses && !record.is_dead_letter() { self.draw(16) } else { 16 };
        let poison = if record.is_poison() { Poison::of(&record.id) } else { None };
        let takes_one = self.draw(8) == 0;
        let is_missing = self.missing_exchange.as_ref() == Some(&exchange);
        let failure = self.stream_failure(record.topic);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let by = (connection.relay, connection.sink);
        let Some(channel) = connection.channels.get_mut(&number).filter(|it| !it.is_closed) else {
            return;
        };
        let topic = record.topic;
        let refusal = refusal(is_missing, &exchange, topic, poison, chance);
        if let Some(refusal) = refusal.or(failure) {
            return self.refuse((id, number), &record, now_us, refusal);
        }
        channel.tag += 1;
        let tag = channel.tag;
        channel.queues.insert(topic);
        let Some(queue) = self.queues.get_mut(topic) else { return };
        let is_returned = matches!(poison, Some(Poison::Returned)) || matches!(chance, 1..=3);
        let is_nacked = matches!(poison, Some(Poison::Nacked)) || matches!(chance, 4..=7);
        let (acked, stores) = match queue.trouble {
            None if is_returned => (Some(true), false),
            Some(Trouble::Gone) => (Some(true), false),
            // A consumer takes one away now and then.
            Some(Trouble::Full) if takes_one => (Some(true), true),
            Some(Trouble::Full) => (Some(false), false),
            None if is_nacked => (Some(false), chance == 4),
            None => (Some(true), true),
            Some(Trouble::Silent | Trouble::Failed) => (None, false),
        };
        channel.unanswered.insert(tag, Unanswered { acked, read_us: now_us });
        if acked == Some(false) || acked == Some(true) && !stores {
            self.refused.insert(record.id.clone());
        }
        let is_full = queue.trouble == Some(Trouble::Full);
        self.counts.full += u64::from(is_full && acked == Some(false));
        self.counts.nacked_and_stored += u64::from(stores && acked == Some(false));
        if acked == Some(true) && !stores {
            let returned =
                ReturnedMessage { id: record.id.clone(), code: 312, text: "NO_ROUTE".to_owned() };
            connection.returned(number, tag);
            connection.answer(now_us, number, Answer::Returned(returned));
            self.counts.returned += 1;
        }
        if acked == Some(true) {
            self.note_taken(by, topic);
        }
        self.tell(|| format!("{} on channel {number} of {by:?}: {acked:?}", record.id));
        let record = Record { by, ..record };
        if acked.is_none() {
            if let Some(queue) = self.queues.get_mut(topic) {
                queue.pending.push_back((id, number, tag, record));
            }
        } else if stores {
            self.store(id, number, tag, record);
        }
    }

    /// A message for a routing key that was refused is taken.
    fn note_taken(&mut self, by: (usize, u64), topic: &str) {
        if !self.forbidden.is_empty()
            && let Some(refused) = self.forbidden.get_mut(&(by, topic.to_owned()))
        {
            refused.is_of_one = true;
        }
    }

    /// The broker closes the channel because of a message.
    fn refuse(
        &mut self,
        (id, number): (u64, u16),
        record: &Record,
        now_us: u64,
        (code, text): (u16, String),
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let by = (connection.relay, connection.sink);
        let Some(channel) = connection.channels.get_mut(&number) else { return };
        let topic = record.topic;
        let last = self.forbidden.get(&(by, topic.to_owned()));
        let is_soon = |it: &Forbidden| {
            it.connection != id && !it.is_of_one && now_us < it.at_us + ASKED_AGAIN_US
        };
        if code == 403 && last.is_some_and(is_soon) {
            let what = format!("closes: {by:?} sends to {topic} at once after a refusal");
            self.complaint.get_or_insert(what);
        }
        channel.is_closed = true;
        self.refused.insert(record.id.clone());
        channel.held.clear();
        self.counts.closed += 1;
        self.counts.no_exchange += u64::from(code == 404);
        if code == 404 {
            self.missing_told[by.0].note(now_us);
        }
        self.counts.forbidden += u64::from(code == 403);
        self.counts.over_queue += u64::from(code == 506);
        let loss = ConnectionLoss::refused(code, &text);
        connection.tell(now_us, AmqpEvent::Closed(loss));
        self.tell(|| format!("channel {number} of {by:?} is closed: {text}"));
    }

    pub(super) fn store(&mut self, id: u64, channel: u16, tag: u64, record: Record) {
        let connection = self.connections.get_mut(&id);
        let is_sent_again = connection.is_some_and(|it| it.stored(channel, tag));
        // Of a connection that is over, nobody will hear.
        let is_over = !self.connections.contains_key(&id);
        self.explained += u64::from(is_sent_again || is_over);
        self.counts.left += u64::from(is_sent_again);
        self.stored.push(record);
    }

    /// Queues that answer again take what has waited for them.
    pub(super) fn recover(&mut self) {
        if self.queues.values().all(|queue| queue.pending.is_empty()) {
            return;
        }
        for name in QUEUES {
            let Some(queue) = self.queues.get_mut(name) else { continue };
            let trouble = queue.trouble;
            if trouble == Some(Trouble::Silent) {
                continue;
            }
            for (id, channel, tag, record) in std::mem::take(&mut queue.pending) {
                let acked = trouble.is_none();
                if !acked {
                    self.refused(&record.id);
                }
                if acked {
                    self.counts.recovered += 1;
                    self.store(id, channel, tag, record);
                }
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.settle(channel, tag, acked);
                }
            }
        }
    }

    /// Silent queues refuse what waits for them from these relays: nothing would fence it off later.
    pub(super) fn refuse_pending(&mut self, mut is_meant: impl FnMut(usize) -> bool) {
        for name in QUEUES {
            let Some(queue) = self.queues.get_mut(name) else { continue };
            for (id, channel, tag, record) in std::mem::take(&mut queue.pending) {
                if is_meant(record.by.0) {
                    self.refused(&record.id);
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.settle(channel, tag, false);
                    }
                } else if let Some(queue) = self.queues.get_mut(name) {
                    queue.pending.push_back((id, channel, tag, record));
                }
            }
        }
    }

    /// Confirms some of what is stored or refused, one by one or several at once.
    pub(super) fn confirm(&mut self, id: u64, now_us: u64, late_us: u64, mood: Mood) {
        if self.connections.get(&id).is_none_or(|it| it.phase != Phase::Open) {
            return;
        }
        let mut last = 0;
        while let Some(number) = self.next_channel(id, last) {
            last = number;
            let mut answers = if mood.lingers { 0 } else { self.draw(4) };
            while let Some(channel) =
                self.connections.get(&id).and_then(|it| it.channels.get(&number))
                && !channel.is_closed
            {
                let known = || channel.unanswered.iter().filter(|(_, it)| it.acked.is_some());
                let is_late = !mood.lingers && known().any(|(_, it)| it.read_us < late_us);
                let count = known().count();
                if count == 0 || answers == 0 && !is_late {
                    break;
                }
                answers = answers.saturating_sub(1);
                let drawn = known().nth(below(&mut self.random, count));
                let Some((&tag, &Unanswered { acked, .. })) = drawn else { break };
                self.confirm_one(id, number, (tag, acked == Some(true)), now_us);
            }
        }
    }

    fn confirm_one(&mut self, id: u64, number: u16, (tag, acked): (u64, bool), now_us: u64) {
        let wants_multiple = self.draw(2) == 0;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(channel) = connection.channels.get_mut(&number) else { return };
        let is_same = |it: &Unanswered| it.acked == Some(acked);
        let multiple =
            wants_multiple && channel.unanswered.range(..=tag).all(|(_, it)| is_same(it));
        let before = channel.unanswered.len();
        channel.unanswered.retain(|it, _| if multiple { *it > tag } else { *it != tag });
        let answered = (before - channel.unanswered.len()) as u64;
        connection.answer(now_us, number, Answer::Confirm { tag, multiple, acked });
        self.counts.several += u64::from(answered > 1);
        self.counts.nacked += u64::from(!acked);
    }
}

/// The answer of the broker to a message that it never takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poison {
    Closes,
    Returned,
    Nacked,
}

impl Poison {
    /// That of the event of a dead letter.
    pub(super) fn of_letter(letter: &Record) -> Option<Poison> {
        if letter.has_poison() { Poison::of(&letter.id) } else { None }
    }

    fn of(id: &str) -> Option<Poison> {
        let number: u64 = id.strip_prefix('e')?.parse().ok()?;
        Some([Poison::Closes, Poison::Returned, Poison::Nacked][(number % 3) as usize])
    }
}

/// Why the broker closes the channel of a message, if it does.
fn refusal(
    is_missing: bool,
    exchange: &str,
    topic: &str,
    poison: Option<Poison>,
    chance: usize,
) -> Option<(u16, String)> {
    match (poison, chance) {
        _ if is_missing => {
            Some((404, format!("NOT_FOUND - no exchange '{exchange}' in vhost '/'")))
        }
        (Some(Poison::Closes), _) => {
            Some((406, "PRECONDITION_FAILED - invalid expiration".to_owned()))
        }
        (None, 0) => Some((
            403,
            format!(
                "ACCESS_REFUSED - access to topic '{topic}' in exchange '{exchange}' in vhost '/' refused for user 'relay'"
            ),
        )),
        _ => None,
    }
}

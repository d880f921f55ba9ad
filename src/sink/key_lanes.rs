//! What was handed over and is not confirmed: which of it may be sent now.
//!
//! Order per key needs one event of a key in flight at a time: a broker may refuse an event and
//! take the next. So the events of a key form a lane, of which only the first may be sent; events
//! without a key have no lane. An event stays here until it is confirmed, so that it can be sent
//! again, in order, over the next connection. Its dead letter takes its place, and its turn.
//!
//! Pure: no socket, no clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::base::event::Sequence;

/// Unconfirmed messages on one connection: enough to keep a broker busy. The client library takes
/// kilobytes for each; four times as many are no faster and cost ten megabytes.
const IN_FLIGHT_EVENTS_MAX: usize = 1024;
/// Bytes of them: the client library copies what it sends, and a broker that stops reading leaves
/// the copies in memory. A single larger message passes alone.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

/// What a desk keeps.
pub(super) trait Item {
    /// Items of one lane are sent one after the other.
    fn lane(&self) -> Option<u64>;

    /// A name that no two items in flight may share, where the broker's answers need one.
    fn unique(&self) -> Option<&str>;

    /// Everything that is copied when it is sent.
    fn size_bytes(&self) -> usize;
}

/// Which lane a key belongs to. Two keys may share one: they only wait for each other.
#[derive(Debug, Default)]
pub(super) struct Lanes(RandomState);

impl Lanes {
    pub(super) fn of(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Is to be sent when it heads its lane.
    Waiting,
    /// May be sent.
    Ready,
    /// Sent, not confirmed.
    InFlight,
    /// Refused; waits for a retry, and its lane with it.
    Refused,
}

#[derive(Debug)]
struct Entry<T> {
    item: Arc<T>,
    state: State,
    /// Was in flight when the broker closed the channel over some message.
    suspect: bool,
    /// Is the dead letter of what was taken in.
    buried: bool,
    /// Has failed, may have, or is a dead letter.
    troubled: bool,
}

/// The events of a key.
#[derive(Debug, Default)]
struct Lane {
    members: BTreeSet<Sequence>,
    troubled: usize,
}

/// The events that are not confirmed.
#[derive(Debug)]
pub(super) struct Desk<T> {
    entries: HashMap<Sequence, Entry<T>>,
    ready: BTreeSet<Sequence>,
    /// Occupied lanes.
    lanes: HashMap<u64, Lane>,
    in_flight: BTreeSet<Sequence>,
    in_flight_bytes: usize,
    /// Unique names in flight.
    names: HashSet<String>,
    /// While there are any, one message is sent at a time.
    suspects: usize,
}

impl<T> Default for Desk<T> {
    fn default() -> Desk<T> {
        Desk {
            entries: HashMap::new(),
            ready: BTreeSet::new(),
            lanes: HashMap::new(),
            in_flight: BTreeSet::new(),
            in_flight_bytes: 0,
            names: HashSet::new(),
            suspects: 0,
        }
    }
}

impl<T: Item> Desk<T> {
    /// Bytes that are sent and not confirmed.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Takes an event in, to be sent after those of its lane that have lower numbers.
    pub(super) fn take(&mut self, sequence: Sequence, item: T) {
        if let Some(lane) = item.lane() {
            let members = &mut self.lanes.entry(lane).or_default().members;
            members.insert(sequence);
            if let Some(next) = members.range(sequence + 1..).next()
                && self.ready.remove(next)
                && let Some(entry) = self.entries.get_mut(next)
            {
                entry.state = State::Waiting;
            }
        }
        let (item, state) = (Arc::new(item), State::Waiting);
        let (suspect, buried, troubled) = (false, false, false);
        self.entries.insert(sequence, Entry { item, state, suspect, buried, troubled });
        self.promote(sequence);
    }

    /// The same for what has failed elsewhere, may have, or is a dead letter.
    pub(super) fn take_troubled(&mut self, sequence: Sequence, item: T) {
        self.take(sequence, item);
        self.trouble(sequence);
    }

    fn trouble(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let known = std::mem::replace(&mut entry.troubled, true);
        let lane = entry.item.lane().and_then(|lane| self.lanes.get_mut(&lane));
        if let Some(lane) = lane.filter(|_| !known) {
            lane.troubled += 1;
        }
    }

    /// Makes what waits ready when nothing is before it.
    fn promote(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let lane = entry.item.lane().and_then(|lane| self.lanes.get(&lane));
        let heads = lane.is_none_or(|lane| lane.members.first() == Some(&sequence));
        if heads && entry.state == State::Waiting {
            entry.state = State::Ready;
            self.ready.insert(sequence);
        }
    }

    /// The oldest event that may be sent now.
    pub(super) fn peek(&self) -> Option<(Sequence, Arc<T>)> {
        let in_flight = self.in_flight.len();
        let most = if self.suspects > 0 { 1 } else { IN_FLIGHT_EVENTS_MAX };
        if in_flight >= most {
            return None;
        }
        let sequence = *self.ready.first()?;
        let item = &self.entries.get(&sequence)?.item;
        let too_much = self.in_flight_bytes + item.size_bytes() > IN_FLIGHT_BYTES_MAX;
        let twice = item.unique().is_some_and(|name| self.names.contains(name));
        if (too_much && in_flight > 0) || twice {
            return None;
        }
        Some((sequence, Arc::clone(item)))
    }

    /// What was peeked at is sent: it counts as in flight from here on.
    pub(super) fn sent(&mut self, sequence: Sequence, item: &T) {
        self.ready.remove(&sequence);
        self.set(sequence, State::InFlight);
        self.in_flight.insert(sequence);
        self.in_flight_bytes += item.size_bytes();
        self.names.extend(item.unique().map(str::to_owned));
    }

    /// Is there nothing here?
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Is there an event of that lane?
    pub(super) fn holds(&self, lane: u64) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// Would it be sent next of its lane?
    pub(super) fn is_ready(&self, sequence: Sequence) -> bool {
        self.ready.contains(&sequence)
    }

    /// The event under this number.
    pub(super) fn item(&self, sequence: Sequence) -> Option<&T> {
        self.entries.get(&sequence).map(|entry| &*entry.item)
    }

    /// The broker has the event: the next of its key may go.
    pub(super) fn confirmed(&mut self, sequence: Sequence) {
        self.landed(sequence);
        let Some(entry) = self.entries.remove(&sequence) else { return };
        self.suspects -= usize::from(entry.suspect);
        let Some(lane) = entry.item.lane() else { return };
        let Some(others) = self.lanes.get_mut(&lane) else { return };
        others.members.remove(&sequence);
        others.troubled -= usize::from(entry.troubled);
        match others.members.first().copied() {
            None => drop(self.lanes.remove(&lane)),
            Some(next) => self.promote(next),
        }
    }

    /// Gives up a lane of which nothing is in flight, once none of it is in trouble any more; what
    /// was in it comes in order.
    pub(super) fn recovered(&mut self, lane: u64) -> Vec<(Sequence, T)> {
        let well = |lane: &&Lane| lane.troubled == 0 && lane.members.is_disjoint(&self.in_flight);
        if self.lanes.get(&lane).filter(well).is_none() {
            return Vec::new();
        }
        let members = self.lanes.remove(&lane).unwrap_or_default().members;
        // Nobody else holds what is not in flight.
        let give = |sequence| {
            self.ready.remove(&sequence);
            let entry = self.entries.remove(&sequence)?;
            self.suspects -= usize::from(entry.suspect);
            Some((sequence, Arc::into_inner(entry.item)?))
        };
        members.into_iter().filter_map(give).collect()
    }

    /// The event was refused: it is kept for a retry, and its key waits.
    pub(super) fn refused(&mut self, sequence: Sequence) {
        self.landed(sequence);
        self.ready.remove(&sequence);
        self.trouble(sequence);
        if let Some(entry) = self.entries.get_mut(&sequence) {
            entry.state = State::Refused;
            self.suspects -= usize::from(std::mem::take(&mut entry.suspect));
        }
    }

    /// Sends a refused event again.
    pub(super) fn retry(&mut self, sequence: Sequence) {
        if self.entries.get(&sequence).is_some_and(|entry| entry.state == State::Refused) {
            self.set(sequence, State::Waiting);
            self.promote(sequence);
        }
    }

    /// Puts its dead letter in the place of an event that is not in flight.
    pub(super) fn replace_with_dead_letter(&mut self, sequence: Sequence, letter: T) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        if entry.state == State::InFlight {
            return;
        }
        debug_assert_eq!(entry.item.lane(), letter.lane(), "a letter has the key of its event");
        entry.item = Arc::new(letter);
        entry.buried = true;
        self.retry(sequence);
    }

    /// Refuses what is to be sent behind an event of its lane, other than dead letters; says what
    /// that was, in order.
    pub(super) fn refuse_behind(&mut self, sequence: Sequence) -> Vec<Sequence> {
        let lane = self.entries.get(&sequence).and_then(|entry| entry.item.lane());
        let lane = lane.and_then(|lane| self.lanes.get(&lane));
        let mut refused = Vec::new();
        for behind in lane.into_iter().flat_map(|lane| lane.members.range(sequence + 1..)) {
            let Some(entry) = self.entries.get_mut(behind) else { continue };
            if entry.state == State::Waiting && !entry.buried {
                entry.state = State::Refused;
                refused.push(*behind);
            }
        }
        refused.iter().for_each(|behind| self.trouble(*behind));
        refused
    }

    /// The connection is gone: whatever was in flight will be sent again. When the broker closed
    /// it over a message, those in flight go one at a time: the next close then names the one, and
    /// nothing else is sent once more for its sake.
    pub(super) fn lost(&mut self, over_a_message: bool) {
        for sequence in std::mem::take(&mut self.in_flight) {
            self.ready.insert(sequence);
            if let Some(entry) = self.entries.get_mut(&sequence) {
                entry.state = State::Ready;
                if over_a_message && !entry.suspect {
                    entry.suspect = true;
                    self.suspects += 1;
                }
            }
        }
        self.names.clear();
        self.in_flight_bytes = 0;
    }

    /// The only event in flight, when it is one that was suspect before.
    pub(super) fn convicted(&self) -> Option<Sequence> {
        let mut all = self.in_flight.iter();
        let only = all.next().copied().filter(|_| all.next().is_none())?;
        self.entries.get(&only).filter(|entry| entry.suspect).map(|_| only)
    }

    fn landed(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get(&sequence) else { return };
        if self.in_flight.remove(&sequence) {
            self.in_flight_bytes -= entry.item.size_bytes();
            if let Some(name) = entry.item.unique() {
                self.names.remove(name);
            }
        }
    }

    fn set(&mut self, sequence: Sequence, state: State) {
        if let Some(entry) = self.entries.get_mut(&sequence) {
            entry.state = state;
        }
    }
}

#[cfg(test)]
#[path = "key_lanes_tests.rs"]
mod tests;

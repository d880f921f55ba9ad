//! What was handed over and is not confirmed: which of it may be sent now.
//!
//! Order per key needs one event of a key in flight at a time: a broker may refuse an event and
//! take the next. So the events of a key form a lane, of which only the first may be sent; events
//! without a key have no lane. An event stays here until it is confirmed, so that it can be sent
//! again, in order, over the next connection.
//!
//! Pure: no socket, no clock.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::message::Message;
use crate::message::Sequence;

/// Unconfirmed messages on one connection: enough to keep a broker busy. The client library takes
/// kilobytes for each; four times as many are no faster and cost ten megabytes.
const IN_FLIGHT_EVENTS_MAX: usize = 1024;
/// Bytes of them: the client library copies what it sends, and a broker that stops reading leaves
/// the copies in memory. A single larger message passes alone.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Behind another event of its key.
    Waiting,
    /// May be sent.
    Ready,
    /// Sent, not confirmed.
    InFlight,
    /// Refused by the broker; waits for a retry, and its lane with it.
    Refused,
}

#[derive(Debug)]
struct Entry {
    message: Arc<Message>,
    state: State,
    /// Was in flight when the broker closed the channel over some message.
    suspect: bool,
}

/// The events that are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Desk {
    entries: HashMap<Sequence, Entry>,
    ready: BTreeSet<Sequence>,
    /// Occupied lanes, and who waits in them.
    lanes: HashMap<u64, VecDeque<Sequence>>,
    /// Ids in flight: a return names the id, so no two may share one.
    ids: HashMap<String, Sequence>,
    in_flight_bytes: usize,
    /// While there are any, one message is sent at a time.
    suspects: usize,
}

impl Desk {
    /// Takes an event in. Sequences rise.
    pub(super) fn take(&mut self, sequence: Sequence, message: Message) {
        let state = match message.lane.map(|lane| self.lanes.entry(lane)) {
            Some(Slot::Occupied(mut lane)) => {
                lane.get_mut().push_back(sequence);
                State::Waiting
            }
            Some(Slot::Vacant(lane)) => {
                lane.insert(VecDeque::new());
                State::Ready
            }
            None => State::Ready,
        };
        if state == State::Ready {
            self.ready.insert(sequence);
        }
        let message = Arc::new(message);
        self.entries.insert(sequence, Entry { message, state, suspect: false });
    }

    /// The oldest event that may be sent now. It counts as in flight from here on.
    pub(super) fn next(&mut self) -> Option<(Sequence, Arc<Message>)> {
        let (sequence, message) = self.peek()?;
        self.ready.remove(&sequence);
        self.set(sequence, State::InFlight);
        self.in_flight_bytes += message.size_bytes();
        self.ids.insert(message.id().to_owned(), sequence);
        Some((sequence, message))
    }

    /// The same, left where it is.
    pub(super) fn peek(&self) -> Option<(Sequence, Arc<Message>)> {
        let in_flight = self.ids.len();
        let most = if self.suspects > 0 { 1 } else { IN_FLIGHT_EVENTS_MAX };
        if in_flight >= most {
            return None;
        }
        let sequence = *self.ready.first()?;
        let message = &self.entries.get(&sequence)?.message;
        let too_much = self.in_flight_bytes + message.size_bytes() > IN_FLIGHT_BYTES_MAX;
        if (too_much && in_flight > 0) || self.ids.contains_key(message.id()) {
            return None;
        }
        Some((sequence, Arc::clone(message)))
    }

    /// The event under this number.
    pub(super) fn message(&self, sequence: Sequence) -> Option<&Message> {
        self.entries.get(&sequence).map(|entry| &*entry.message)
    }

    /// The broker has the event: the next of its key may go.
    pub(super) fn confirmed(&mut self, sequence: Sequence) {
        self.landed(sequence);
        let Some(entry) = self.entries.remove(&sequence) else { return };
        self.suspects -= usize::from(entry.suspect);
        let Some(lane) = entry.message.lane else { return };
        let Slot::Occupied(mut waiting) = self.lanes.entry(lane) else { return };
        match waiting.get_mut().pop_front() {
            None => {
                waiting.remove();
            }
            Some(next) => {
                self.set(next, State::Ready);
                self.ready.insert(next);
            }
        }
    }

    /// The broker has refused the event: it is kept for a retry, and its key waits.
    pub(super) fn refused(&mut self, sequence: Sequence) {
        self.landed(sequence);
        self.ready.remove(&sequence);
        if let Some(entry) = self.entries.get_mut(&sequence) {
            entry.state = State::Refused;
            self.suspects -= usize::from(std::mem::take(&mut entry.suspect));
        }
    }

    /// Sends a refused event again.
    pub(super) fn retry(&mut self, sequence: Sequence) {
        if self.entries.get(&sequence).is_some_and(|entry| entry.state == State::Refused) {
            self.set(sequence, State::Ready);
            self.ready.insert(sequence);
        }
    }

    /// The connection is gone: whatever was in flight will be sent again. When the broker closed
    /// it over a message, those in flight go one at a time: the next close then names the one, and
    /// nothing else is sent once more for its sake.
    pub(super) fn lost(&mut self, over_a_message: bool) {
        for (_, sequence) in std::mem::take(&mut self.ids) {
            self.ready.insert(sequence);
            if let Some(entry) = self.entries.get_mut(&sequence) {
                entry.state = State::Ready;
                if over_a_message && !entry.suspect {
                    entry.suspect = true;
                    self.suspects += 1;
                }
            }
        }
        self.in_flight_bytes = 0;
    }

    /// The only event in flight, when it is one that was suspect before.
    pub(super) fn convicted(&self) -> Option<Sequence> {
        let mut all = self.ids.values();
        let only = all.next().copied().filter(|_| all.next().is_none())?;
        self.entries.get(&only).filter(|entry| entry.suspect).map(|_| only)
    }

    fn landed(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get(&sequence) else { return };
        if entry.state == State::InFlight {
            self.in_flight_bytes -= entry.message.size_bytes();
            self.ids.remove(entry.message.id());
        }
    }

    fn set(&mut self, sequence: Sequence, state: State) {
        if let Some(entry) = self.entries.get_mut(&sequence) {
            entry.state = state;
        }
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;

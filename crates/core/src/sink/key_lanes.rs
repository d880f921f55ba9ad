//! The events that were handed to a sink and are not confirmed, and which of them may be sent now.
//!
//! A broker may refuse an event and accept the next one. So at most one event of a key is in
//! flight: the events of a key form a lane, of which only the first may be sent. Events without a
//! key have no lane. An event stays here until it is confirmed, so that it can be sent again, in
//! order, over the next connection. Its dead letter takes its place in the lane.
//!
//! Pure: no socket, no clock.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use crate::base::event::Sequence;
use crate::base::hash::{HashMap, HashSet};
use crate::base::random::{Random, Salt};
use crate::mutants::{Mutant, on};

/// Keeps a broker busy: four times as many are no faster.
const IN_FLIGHT_EVENTS_MAX: usize = 1024;
/// The most bytes of copies: an event that is sent is copied, and the copy is kept while a broker
/// does not read. A single larger message is sent alone.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

pub trait LaneItem {
    /// Items of one lane are sent one after the other.
    fn lane(&self) -> Option<u64>;

    /// Hash of a name that no two items in flight may share, where the broker's answers need one.
    fn unique(&self) -> Option<u64>;

    /// Everything that is copied when the item is sent.
    fn size_bytes(&self) -> usize;
}

/// Chooses the lane of a key. Two keys may share one: they only wait for each other.
#[derive(Debug)]
pub struct KeyHasher(Salt);

impl KeyHasher {
    /// A hasher with a seed that the writers of keys must not know, or all keys could share a lane.
    #[must_use]
    pub fn new(seed: u64) -> KeyHasher {
        KeyHasher(Random::new(seed).salt())
    }

    #[must_use]
    #[inline]
    pub fn lane(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

struct Entry<T> {
    item: Arc<T>,
    in_flight: bool,
    /// Refused by the broker: it and its lane wait until [`KeyLanes::retry`] is called.
    refused: bool,
    /// Was in flight when the broker closed the channel because of some message.
    suspect: bool,
    /// Was a suspect when it was set aside.
    suspect_aside: bool,
    /// Was left without an answer: other suspects are sent before it.
    unanswered: bool,
    /// Has failed, may have failed, or is a dead letter.
    troubled: bool,
}

#[derive(Default)]
struct Lane {
    members: BTreeSet<Sequence>,
    troubled: usize,
}

pub struct KeyLanes<T> {
    entries: HashMap<Sequence, Entry<T>>,
    lanes: HashMap<u64, Lane>,
    /// May be sent.
    ready: BTreeSet<Sequence>,
    /// How many are in flight.
    in_flight: usize,
    /// Events in flight for which [`KeyLanes::unanswered`] was called.
    unanswered: BTreeSet<Sequence>,
    /// The bytes of those in flight that may still be answered soon.
    in_flight_bytes: usize,
    /// The hashes of the unique names of what is in flight.
    names: HashSet<u64>,
    /// While there are suspects, one event is sent at a time.
    suspects: usize,
}

impl<T> Default for KeyLanes<T> {
    fn default() -> KeyLanes<T> {
        KeyLanes {
            entries: HashMap::default(),
            lanes: HashMap::default(),
            ready: BTreeSet::new(),
            in_flight: 0,
            unanswered: BTreeSet::new(),
            in_flight_bytes: 0,
            names: HashSet::default(),
            suspects: 0,
        }
    }
}

impl<T: LaneItem> KeyLanes<T> {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn contains_lane(&self, lane: u64) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// Whether the event may be sent now, as far as its lane is concerned.
    pub fn is_ready(&self, sequence: Sequence) -> bool {
        self.ready.contains(&sequence)
    }

    /// Whether it also shares its unique name with nothing in flight.
    pub fn is_free(&self, sequence: Sequence) -> bool {
        let name = self.item(sequence).and_then(T::unique);
        self.is_ready(sequence) && name.is_none_or(|name| !self.names.contains(&name))
    }

    pub fn item(&self, sequence: Sequence) -> Option<&T> {
        self.entries.get(&sequence).map(|entry| &*entry.item)
    }

    /// Adds an event, to be sent after those of its lane with lower sequences.
    pub fn add(&mut self, sequence: Sequence, item: T) {
        if let Some(lane) = item.lane() {
            let members = &mut self.lanes.entry(lane).or_default().members;
            members.insert(sequence);
            if let Some(next) = members.range(sequence + 1..).next() {
                self.ready.remove(next);
            }
        }
        let entry = Entry {
            item: Arc::new(item),
            in_flight: false,
            refused: false,
            suspect: false,
            suspect_aside: false,
            unanswered: false,
            troubled: false,
        };
        self.entries.insert(sequence, entry);
        self.promote(sequence);
    }

    /// Adds an event that has failed elsewhere or may have failed, or a dead letter.
    pub fn add_troubled(&mut self, sequence: Sequence, item: T) {
        self.add(sequence, item);
        self.mark_troubled(sequence);
    }

    fn mark_troubled(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let was_troubled = std::mem::replace(&mut entry.troubled, true);
        let lane = entry.item.lane().and_then(|lane| self.lanes.get_mut(&lane));
        if let Some(lane) = lane.filter(|_| !was_troubled) {
            lane.troubled += 1;
        }
    }

    /// Makes an event ready if it only waits for its turn and is the first of its lane.
    fn promote(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get(&sequence) else { return };
        let lane = entry.item.lane().and_then(|lane| self.lanes.get(&lane));
        let is_first = lane.is_none_or(|lane| lane.members.first() == Some(&sequence));
        let is_first = is_first || on(Mutant::LaneInParallel);
        if is_first && !entry.refused && !entry.in_flight {
            self.ready.insert(sequence);
        }
    }

    /// The oldest event that may be sent now.
    pub fn peek(&self) -> Option<(Sequence, Arc<T>)> {
        self.peek_if(|_, _| true)
    }

    /// The oldest event that may be sent now and passes `may_go`.
    pub fn peek_if(
        &self,
        mut may_go: impl FnMut(Sequence, &T) -> bool,
    ) -> Option<(Sequence, Arc<T>)> {
        let in_flight = self.in_flight - self.unanswered.len();
        if in_flight >= IN_FLIGHT_EVENTS_MAX || (self.suspects > 0 && in_flight > 0) {
            return None;
        }
        let entries = self.ready.iter().map(|sequence| (*sequence, self.entries.get(sequence)));
        let entries = entries.filter_map(|(sequence, entry)| Some((sequence, entry?)));
        // Among what is without an answer, a close names nobody. So what may stay without one
        // again goes last.
        let is_first = |entry: &Entry<T>| entry.suspect && !entry.unanswered;
        let mut first = entries.clone().filter(|(_, entry)| is_first(entry));
        let is_name_taken = |item: &T| item.unique().is_some_and(|name| self.names.contains(&name));
        // A name may be taken for long.
        let skips_names = !self.unanswered.is_empty();
        let mut goes = |(sequence, entry): &(Sequence, &Entry<T>)| {
            let item = &*entry.item;
            !(skips_names && is_name_taken(item)) && may_go(*sequence, item)
        };
        let found = if self.suspects > 0 { first.find(&mut goes) } else { None };
        let (sequence, Entry { item, .. }) = found.or_else(|| entries.clone().find(&mut goes))?;
        let is_too_much = self.in_flight_bytes + item.size_bytes() > IN_FLIGHT_BYTES_MAX;
        if (is_too_much && in_flight > 0) || is_name_taken(item) {
            return None;
        }
        Some((sequence, Arc::clone(item)))
    }

    /// The event that [`KeyLanes::peek`] returned is sent, and in flight from here on.
    pub fn sent(&mut self, sequence: Sequence, item: &T) {
        self.ready.remove(&sequence);
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        entry.in_flight = true;
        self.in_flight += 1;
        self.in_flight_bytes += item.size_bytes();
        self.names.extend(item.unique());
    }

    /// The event that [`KeyLanes::peek`] returned cannot be sent now. It is no longer ready, and no
    /// suspect for which others would wait, until [`KeyLanes::take_up`] is called.
    pub fn set_aside(&mut self, sequence: Sequence) {
        self.ready.remove(&sequence);
        if let Some(entry) = self.entries.get_mut(&sequence) {
            let was_suspect = std::mem::take(&mut entry.suspect);
            entry.suspect_aside |= was_suspect;
            self.suspects -= usize::from(was_suspect);
        }
    }

    /// An event that was set aside may be sent again.
    pub fn take_up(&mut self, sequence: Sequence) {
        let aside = self.entries.get_mut(&sequence).map(|entry| &mut entry.suspect_aside);
        if aside.is_some_and(std::mem::take) {
            self.suspect(sequence);
        }
        self.promote(sequence);
    }

    /// Removes an event that the broker has: the next of its lane may be sent.
    pub fn confirmed(&mut self, sequence: Sequence) {
        self.answered(sequence);
        let Some(entry) = self.entries.remove(&sequence) else { return };
        self.suspects -= usize::from(entry.suspect);
        let Some(id) = entry.item.lane() else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.members.remove(&sequence);
        lane.troubled -= usize::from(entry.troubled);
        match lane.members.first().copied() {
            None => drop(self.lanes.remove(&id)),
            Some(next) => self.promote(next),
        }
    }

    /// Removes a lane without troubled events of which nothing is in flight. Returns its events in
    /// order.
    pub fn take_recovered(&mut self, id: u64) -> Vec<(Sequence, T)> {
        let has_recovered = |lane: &&Lane| {
            lane.troubled == 0 && !lane.members.iter().any(|it| self.is_in_flight(*it))
        };
        if self.lanes.get(&id).filter(has_recovered).is_none() {
            return Vec::new();
        }
        let members = self.lanes.remove(&id).unwrap_or_default().members;
        let remove = |sequence| {
            self.ready.remove(&sequence);
            let entry = self.entries.remove(&sequence)?;
            self.suspects -= usize::from(entry.suspect);
            // Only what is in flight is held by somebody else as well.
            Some((sequence, Arc::into_inner(entry.item)?))
        };
        members.into_iter().filter_map(remove).collect()
    }

    /// The event was refused. It is kept for a retry, and its lane waits.
    pub fn refused(&mut self, sequence: Sequence) {
        self.answered(sequence);
        self.mark_troubled(sequence);
        if let Some(entry) = self.entries.get_mut(&sequence) {
            (entry.refused, entry.suspect_aside) = (true, false);
            self.suspects -= usize::from(std::mem::take(&mut entry.suspect));
        }
        if on(Mutant::LaneGoesOn) {
            self.promote_behind(sequence);
        }
    }

    /// Makes the next event of the lane ready although the one before it is not confirmed.
    fn promote_behind(&mut self, sequence: Sequence) {
        let lane = self.entries.get(&sequence).and_then(|entry| entry.item.lane());
        let lane = lane.and_then(|lane| self.lanes.get(&lane));
        let next = lane.and_then(|lane| lane.members.range(sequence + 1..).next().copied());
        self.ready.extend(next);
    }

    /// Sends a refused event again.
    pub fn retry(&mut self, sequence: Sequence) {
        if let Some(entry) = self.entries.get_mut(&sequence) {
            entry.refused = false;
            self.promote(sequence);
        }
    }

    /// Puts its dead letter in the place of an event that is not in flight.
    pub fn replace_with_dead_letter(&mut self, sequence: Sequence, letter: T) {
        let entry = self.entries.get_mut(&sequence);
        let Some(entry) = entry.filter(|entry| !entry.in_flight) else { return };
        if cfg!(test) {
            assert_eq!(entry.item.lane(), letter.lane(), "a letter has the key of its event");
        }
        entry.item = Arc::new(letter);
        self.retry(sequence);
    }

    /// Refuses the events that wait behind an event of their lane. Returns them in order.
    pub fn refuse_behind(&mut self, sequence: Sequence) -> Vec<Sequence> {
        let lane = self.entries.get(&sequence).and_then(|entry| entry.item.lane());
        let lane = lane.and_then(|lane| self.lanes.get(&lane));
        let mut refused = Vec::new();
        for behind in lane.into_iter().flat_map(|lane| lane.members.range(sequence + 1..)) {
            let Some(entry) = self.entries.get_mut(behind) else { continue };
            let is_sent = entry.in_flight || self.ready.contains(behind);
            if !is_sent && !entry.refused {
                entry.refused = true;
                refused.push(*behind);
            }
        }
        refused.iter().for_each(|behind| self.mark_troubled(*behind));
        refused
    }

    /// The connection is lost: everything in flight will be sent again. If the broker closed it
    /// because of a message, those in flight are sent one at a time, so that the next close
    /// identifies the message and no other is sent again because of it. A message that was long
    /// without an answer is hardly the reason: the broker closes at once.
    pub fn connection_lost(&mut self, because_of_a_message: bool) {
        let unanswered = std::mem::take(&mut self.unanswered);
        self.in_flight = 0;
        for (sequence, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.in_flight) {
            entry.in_flight = false;
            if on(Mutant::RabbitLossForgotten) {
                continue;
            }
            self.ready.insert(*sequence);
            if because_of_a_message && !entry.suspect && !unanswered.contains(sequence) {
                entry.suspect = true;
                self.suspects += 1;
            }
        }
        self.names.clear();
        self.in_flight_bytes = 0;
    }

    /// The event must be sent alone: the broker may close the connection over it.
    pub fn suspect(&mut self, sequence: Sequence) {
        if let Some(entry) = self.entries.get_mut(&sequence) {
            self.suspects += usize::from(!std::mem::replace(&mut entry.suspect, true));
        }
    }

    /// The event in flight was left without an answer for long, while the broker may answer others.
    /// Later events do not wait for it any longer: it counts towards no bound, and is no suspect
    /// any more.
    pub fn unanswered(&mut self, sequence: Sequence) {
        if on(Mutant::RabbitUnansweredForgotten) {
            return;
        }
        let is_new = self.is_in_flight(sequence) && self.unanswered.insert(sequence);
        if let Some(entry) = self.entries.get_mut(&sequence).filter(|_| is_new) {
            entry.unanswered = true;
            self.in_flight_bytes -= entry.item.size_bytes();
            self.suspects -= usize::from(std::mem::take(&mut entry.suspect));
        }
    }

    /// Whether nothing may be sent now, and no answer is expected soon.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.in_flight == self.unanswered.len()
    }

    /// Whether anything in flight was left without an answer for long.
    pub fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Whether one event is sent at a time.
    pub fn has_suspects(&self) -> bool {
        self.suspects > 0
    }

    pub fn is_suspect(&self, sequence: Sequence) -> bool {
        self.entries.get(&sequence).is_some_and(|entry| entry.suspect)
    }

    pub fn is_in_flight(&self, sequence: Sequence) -> bool {
        self.entries.get(&sequence).is_some_and(|entry| entry.in_flight)
    }

    /// Whether anything is in flight.
    pub fn has_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// The events in flight, in their order. Looks at all events.
    pub fn in_flight(&self) -> Vec<(Sequence, &T)> {
        let entries = self.entries.iter().filter(|(_, entry)| entry.in_flight);
        let mut in_flight: Vec<_> =
            entries.map(|(sequence, entry)| (*sequence, &*entry.item)).collect();
        in_flight.sort_unstable_by_key(|(sequence, _)| *sequence);
        in_flight
    }

    /// The only event in flight, if it was a suspect before.
    pub fn lone_suspect(&self) -> Option<Sequence> {
        if self.in_flight != 1 {
            return None;
        }
        let is_meant = |(_, entry): &(&Sequence, &Entry<T>)| entry.in_flight && entry.suspect;
        self.entries.iter().find(is_meant).map(|(sequence, _)| *sequence)
    }

    fn answered(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        if !std::mem::take(&mut entry.in_flight) {
            self.ready.remove(&sequence);
            return;
        }
        self.in_flight -= 1;
        let is_counted = !self.unanswered.remove(&sequence);
        self.in_flight_bytes -= if is_counted { entry.item.size_bytes() } else { 0 };
        if let Some(name) = entry.item.unique() {
            self.names.remove(&name);
        }
    }
}

#[cfg(test)]
#[path = "key_lanes_tests.rs"]
mod tests;

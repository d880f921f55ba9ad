//! Checker that compares the records that consumers saw with the committed events. It knows nothing
//! of the relay.

use std::collections::BTreeMap;
use std::fmt;

use crate::broker::{Broker, DEAD_LETTERS, Record};
use crate::numbers::Numbers;
use crate::postgres::{Event, Postgres, TOPICS, Transaction};

/// A violation, as a sentence, and the events that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub what: String,
    pub events: Vec<u64>,
}

impl From<String> for Violation {
    fn from(what: String) -> Violation {
        Violation { what, events: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The records of a key in a partition.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    last: u64,
    newest: u64,
    /// How many records were looked at before the last one.
    at: usize,
}

/// The dead letter that parks a key.
#[derive(Clone, Copy, Debug)]
struct Parked {
    event: u64,
    /// The sink that wrote the dead letter.
    sink: u64,
    /// It was stored after the next sink of its relay had begun: what that one holds is published.
    is_late: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// How many of the stored records were looked at.
    looked: usize,
    /// Events that a topic holds, and those that are dead letters.
    published: Numbers,
    dead: Numbers,
    /// The newest event of each key that is stored.
    newest: BTreeMap<&'static [u8], u64>,
    /// The last record and the newest event of each key, topic and partition. If a key has two
    /// topics, one may end with a repetition that a relay has not completed: the next one
    /// judges each topic by itself. A key has two partitions if its topic was given others: then
    /// consumers may read either by itself, or all in the order in which they were stored.
    ends: BTreeMap<(&'static [u8], usize, i32), End>,
    pub(crate) repeats: u64,
    /// Transactions up to which everything must be stored were looked at.
    confirmed_until: usize,
    /// The slot was moved back at some time.
    has_gone_back: bool,
    /// Events that may be lost, because something else than a relay has moved the slot over them, or
    /// because the database has forgotten them.
    pub(crate) excused: Numbers,
    /// The events that Postgres has lost.
    pub(crate) gone: Vec<Event>,
    /// Events that need not be the last of their key, because their relay could not know that another one
    /// has published earlier ones again.
    passed_over: Numbers,
    /// Events that a topic has lost, and which must be in it again.
    again: Numbers,
    /// Repetitions that something explains.
    pub(crate) allowed_repeats: u64,
    /// A dead letter parks its key.
    parks: bool,
    /// The first event of each key that was stored as a dead letter and parks it.
    parked: BTreeMap<&'static [u8], Parked>,
    /// The dead letter that has parked a key may be gone.
    letters_are_gone: bool,
}

pub(crate) fn number(record: &Record) -> Option<u64> {
    record.id.strip_prefix('e')?.parse().ok()
}

impl Checker {
    pub(crate) fn new(parks: bool) -> Checker {
        Checker { parks, ..Checker::default() }
    }

    /// Looks at what was stored since the last look.
    pub(crate) fn look(&mut self, broker: &Broker) -> Result<(), Violation> {
        for record in &broker.stored[self.looked..] {
            self.looked += 1;
            let Some(number) = number(record) else { continue };
            // What an earlier sink has sent before may be stored late.
            let is_old = broker.last_sinks[record.by.0] != record.by.1;
            if record.is_dead_letter() {
                self.dead.insert(number);
                if self.parks {
                    self.park(record, number, is_old);
                }
                self.judge_follower(record, number)?;
                // Later events of the key wait there, also those that come again; and what comes again
                // may have become a dead letter.
                if self.parks || self.published.contains(number) {
                    let ends = self.ends.iter_mut().filter(|(it, _)| Some(it.0) == record.key);
                    ends.for_each(|(_, end)| end.last = end.last.max(number));
                }
                continue;
            }
            // What is a dead letter was given up in its place.
            let is_new = self.published.insert(number) && !self.dead.contains(number);
            self.repeats += u64::from(!is_new);
            let is_first = is_new && !self.again.contains(number);
            let Some(key) = record.key else { continue };
            self.judge_parked(key, number, is_first, is_old.then_some(record.by.1))?;
            let is_excused = self.excused.contains(number);
            let at = self.looked;
            let end = self.end_of(key, record);
            (end.last, end.at) = (number, at);
            if !is_excused {
                end.newest = end.newest.max(number);
            }
            // Where somebody else has moved the slot, or put the database back, nothing has an order.
            if is_excused {
                continue;
            }
            let newest = self.newest.entry(key).or_default();
            if is_first && number < *newest {
                let key = String::from_utf8_lossy(key);
                let what = format!(
                    "order: key {key}: event {number} is stored for the first time behind {newest}"
                );
                return Err(Violation { what, events: vec![number, *newest] });
            }
            *newest = (*newest).max(number);
        }
        Ok(())
    }

    fn end_of(&mut self, key: &'static [u8], record: &Record) -> &mut End {
        let topic = TOPICS.iter().position(|topic| *topic == record.topic).unwrap_or_default();
        self.ends.entry((key, topic, record.partition)).or_default()
    }

    fn park(&mut self, record: &Record, number: u64, is_late: bool) {
        if let Some(key) = record.key.filter(|_| !record.is_parked()) {
            let new = Parked { event: number, sink: record.by.1, is_late };
            let first = self.parked.entry(key).or_insert(new);
            first.event = number.min(first.event);
            first.is_late &= is_late;
        }
    }

    /// A key can be released only if a dead letter in the topic parks it.
    fn judge_follower(&self, record: &Record, number: u64) -> Result<(), Violation> {
        let is_parked = record.key.is_none_or(|key| self.parked.contains_key(key));
        if is_parked || !record.is_parked() || self.letters_are_gone {
            return Ok(());
        }
        let key = String::from_utf8_lossy(record.key.unwrap_or_default());
        let what = format!(
            "parked: event {number} of key {key} is a dead letter of a parked key, and no dead letter parks it"
        );
        Err(Violation { what, events: vec![number] })
    }

    /// Nobody releases a key. Where the database has gone back, positions begin again before it was
    /// parked.
    fn judge_parked(
        &self,
        key: &[u8],
        number: u64,
        is_first: bool,
        old_sink: Option<u64>,
    ) -> Result<(), Violation> {
        match self.parked.get(key) {
            Some(Parked { sink, .. }) if old_sink.is_some_and(|old| old < *sink) => Ok(()),
            Some(Parked { event: parks, is_late, .. })
                if is_first && number > *parks && self.excused.is_empty() && !is_late =>
            {
                let key = String::from_utf8_lossy(key);
                let what = format!(
                    "parked: event {number} of key {key} is published, although the dead letter {parks} parks it"
                );
                Err(Violation { what, events: vec![number, *parks] })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_settled(&self, number: u64) -> bool {
        self.is_stored(number) || self.excused.contains(number)
    }

    pub(crate) fn is_stored(&self, number: u64) -> bool {
        self.published.contains(number) || self.dead.contains(number)
    }

    /// The slot has moved to a position that a relay has confirmed.
    pub(crate) fn confirmed(
        &mut self,
        postgres: &Postgres,
        broker: &Broker,
    ) -> Result<(), Violation> {
        self.look(broker)?;
        let confirmed = postgres.slot.as_ref().map_or(0, |slot| slot.confirmed);
        while let Some(transaction) = postgres.wal.get(self.confirmed_until) {
            if transaction.commit_lsn >= confirmed {
                break;
            }
            self.confirmed_until += 1;
            let lost = transaction.events().find(|event| !self.is_settled(event.number));
            if let Some(event) = lost {
                let what = format!(
                    "loss: the slot is confirmed up to {confirmed:x}, behind event {} (commit {:x}), which is stored nowhere",
                    event.number, transaction.commit_lsn
                );
                return Err(Violation { what, events: vec![event.number] });
            }
        }
        Ok(())
    }

    /// A topic was made anew, without records.
    pub(crate) fn topic_is_anew(&mut self, topic: &str, broker: &Broker) -> Result<(), Violation> {
        self.look(broker)?;
        self.ends.retain(|(_, it, _), _| TOPICS[*it] != topic);
        Ok(())
    }

    /// From here on another cluster counts. What the slot has passed stays in the old one.
    pub(crate) fn other_cluster(&mut self, postgres: &Postgres) {
        let confirmed = postgres.reported();
        for event in postgres.sent_from(confirmed).iter().flat_map(|it| it.events()) {
            self.published.remove(event.number);
            self.dead.remove(event.number);
        }
        self.newest.clear();
        self.parked.clear();
        self.letters_are_gone = true;
        self.ends.clear();
    }

    /// The slot was moved back.
    pub(crate) fn went_back(&mut self) {
        (self.confirmed_until, self.has_gone_back) = (0, true);
    }

    /// Postgres has lost these transactions.
    pub(crate) fn lost_by_postgres(&mut self, gone: &[Transaction]) {
        self.gone.extend(gone.iter().flat_map(Transaction::events).cloned());
        self.excused.extend(gone.iter().flat_map(Transaction::events).map(|it| it.number));
    }

    /// Excuses events that librdkafka has confirmed by itself, if no topic has them.
    pub(crate) fn excuse_unstored(&mut self, records: &[Record]) {
        let unstored = records.iter().filter_map(number).filter(|it| !self.is_stored(*it));
        let unstored: Vec<u64> = unstored.collect();
        self.excused.extend(unstored);
    }

    /// Excuses the events over which another client has moved the slot. True if some of it is
    /// stored nowhere.
    pub(crate) fn excuse_before(&mut self, postgres: &Postgres, position: u64) -> bool {
        let before = postgres.wal.iter().take_while(|it| it.commit_lsn < position);
        let events = before.flat_map(|transaction| transaction.events().map(|it| it.number));
        let events: Vec<u64> = events.collect();
        let is_harmed = events.iter().any(|number| !self.is_settled(*number));
        self.excused.extend(events);
        is_harmed
    }

    /// A relay may pass over events that are stored and that Postgres sends from this position on, although
    /// another one has published some of them again.
    pub(crate) fn pass_over_published(&mut self, postgres: &Postgres, position: u64) {
        let events = postgres.sent_from(position).iter().flat_map(|it| it.events());
        let stored = events.map(|it| it.number).filter(|it| self.published.contains(*it));
        self.passed_over.extend(stored.collect::<Vec<_>>());
    }

    /// The topics hold less than they did. What the slot has passed stays lost, and the rest must be
    /// published again.
    pub(crate) fn forget(&mut self, postgres: &Postgres, broker: &Broker) {
        let reported = postgres.reported();
        for event in postgres.sent_from(reported).iter().flat_map(|it| it.events()) {
            let id = format!("e{}", event.number);
            let held = |it: &Record| it.id == id;
            let (letters, records): (Vec<_>, Vec<_>) =
                broker.logs.iter().partition(|(topic, _)| **topic == DEAD_LETTERS);
            if !records.iter().any(|(_, log)| log.iter().any(held)) {
                self.published.remove(event.number);
                self.again.insert(event.number);
            }
            if !letters.iter().any(|(_, log)| log.iter().any(held)) {
                self.dead.remove(event.number);
            }
        }
        let is_settled = |number: &u64| self.published.contains(*number);
        for (key, newest) in &mut self.newest {
            let of_key = broker.logs.values().flatten().filter(|it| it.key == Some(*key));
            *newest = of_key.filter_map(number).filter(is_settled).max().unwrap_or_default();
        }
        let parked = std::mem::take(&mut self.parked);
        self.letters_are_gone = true;
        self.ends.clear();
        for (at, record) in broker.logs.values().flatten().enumerate() {
            let (Some(number), Some(key)) = (number(record), record.key) else { continue };
            if record.is_dead_letter() {
                if self.parks {
                    let is_late = parked.get(key).is_some_and(|it| it.is_late);
                    self.park(record, number, is_late);
                }
                continue;
            }
            let end = self.end_of(key, record);
            *end = End { last: number, newest: end.newest.max(number), at };
        }
    }

    /// How many of the events that Postgres sends from this position on are stored, or may be.
    pub(crate) fn stored_since(&self, postgres: &Postgres, broker: &Broker, position: u64) -> u64 {
        let events = postgres.sent_from(position).iter().flat_map(|it| it.events());
        let sent = |event| broker.inbox.iter().any(|it| number(&it.record) == Some(event));
        // A dead letter may be followed by its event, once the topic takes that.
        let stored = events.filter(|it| self.is_stored(it.number) || sent(it.number));
        stored.count() as u64
    }

    /// Whether every event is stored, and the slot has passed it.
    pub(crate) fn all_settled(&self, postgres: &Postgres) -> bool {
        let Some(slot) = &postgres.slot else { return false };
        let all = postgres.wal.iter().flat_map(|transaction| transaction.events());
        // A relay that has begun to receive a transaction which is gone now reports nothing behind its last
        // event before the WAL is as long again.
        let counts = |it: &&Transaction| !self.has_gone_back || it.events().next().is_some();
        let last = postgres.wal.iter().rfind(counts).map_or(0, |it| it.commit_lsn);
        slot.confirmed > last && all.into_iter().all(|event| self.is_settled(event.number))
    }

    fn judge_ends(&self) -> Result<(), Violation> {
        let is_explained = |it| self.excused.contains(it) || self.passed_over.contains(it);
        let is_stale = |&End { last, newest, .. }: &End| last < newest && !is_explained(newest);
        for (&(key, topic, _), end) in self.ends.iter().filter(|(_, end)| is_stale(end)) {
            let partitions = self.ends.range((key, topic, i32::MIN)..=(key, topic, i32::MAX));
            let ends = partitions.map(|(_, end)| end);
            let newest = ends.clone().map(|end| end.newest).max().unwrap_or_default();
            let last = ends.max_by_key(|end| end.at).map_or(end.last, |end| end.last);
            if is_stale(&End { last, newest, at: 0 }) {
                let key = String::from_utf8_lossy(key);
                let what = format!(
                    "stale: the last record of key {key} is event {last}, and its newest is {newest}"
                );
                return Err(Violation { what, events: vec![last, newest] });
            }
        }
        Ok(())
    }

    /// Everything is quiet.
    pub(crate) fn end(&mut self, postgres: &Postgres, broker: &Broker) -> Result<(), Violation> {
        self.look(broker)?;
        self.judge_ends()?;
        let all = postgres.wal.iter().flat_map(|transaction| transaction.events());
        let lost: Vec<u64> =
            all.map(|it| it.number).filter(|number| !self.is_settled(*number)).collect();
        if !lost.is_empty() {
            let what = format!("loss: events {lost:?} are stored nowhere");
            return Err(Violation { what, events: lost });
        }
        if self.repeats > self.allowed_repeats {
            let (repeats, allowed) = (self.repeats, self.allowed_repeats);
            let what = format!("repeats: {repeats}, of which {allowed} are explained");
            return Err(what.into());
        }
        Ok(())
    }
}

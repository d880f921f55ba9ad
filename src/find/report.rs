//! Puts together what Postgres, the dead-letter topic and the broker know of the events. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::event::{
    Completeness, EventLetter, EventSighting, EventState, FoundEvent, OutboxRow, PublishedRecord,
    SlotPosition,
};
use super::sentences::sentences;
use crate::base::text::shown;
use crate::base::time::rfc3339;

/// Events of one answer, the newest.
pub(super) const EVENTS_MAX: usize = 100;

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FindReport {
    /// The oldest first.
    pub(crate) events: Vec<FoundEvent>,
    pub(crate) slot: Option<SlotPosition>,
    /// Places that were searched, and those that could not be, a sentence each.
    pub(crate) searched: Vec<String>,
    pub(crate) not_searched: Vec<String>,
    /// Neither rows nor topics could be searched, only dead letters at most.
    pub(crate) is_unsearched: bool,
}

impl FindReport {
    /// Was an event found, and is it known of each where it is?
    pub(crate) fn is_known(&self) -> bool {
        let known = |event: &FoundEvent| event.state != EventState::Unknown;
        !self.events.is_empty() && self.events.iter().all(known)
    }

    /// Adds the events that were found.
    pub(super) fn add(
        &mut self,
        rows: Vec<OutboxRow>,
        letters: Vec<EventSighting<EventLetter>>,
        records: Vec<EventSighting<PublishedRecord>>,
        read: Completeness,
    ) {
        let mut events: BTreeMap<String, FoundEvent> = BTreeMap::new();
        for row in rows {
            let event = event_of(&mut events, &row.id);
            if event.row.is_some() {
                let (id, table) = (row.id, row.table);
                let another = format!("another row of event {id} in {table}: one row is shown");
                self.not_searched.push(another);
                event.is_of_two_tables |= event.row.as_ref().is_some_and(|row| row.table != table);
                continue;
            }
            event.key = row.key.as_deref().map(shown);
            event.commit_unix_us = row.committed_unix_us;
            event.row = Some(row);
        }
        for letter in letters {
            let event = event_of(&mut events, &letter.event_id);
            let letter = event.learn(letter);
            event.letters.push(letter);
        }
        for record in records {
            let event = event_of(&mut events, &record.event_id);
            let record = event.learn(record);
            event.records.push(record);
        }
        self.events = events.into_values().collect();
        self.events.sort_by_key(FoundEvent::order);
        if let Some(more) = self.events.len().checked_sub(EVENTS_MAX).filter(|more| *more > 0) {
            self.events.drain(..more);
            self.not_searched
                .push(format!("{more} older events: the newest {EVENTS_MAX} are shown"));
        }
        for event in &mut self.events {
            event.judge(self.slot.as_ref(), read);
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "events": self.events_json(),
            "searched": self.searched,
            "not_searched": self.not_searched,
        })
    }

    pub(crate) fn events_json(&self) -> Vec<Value> {
        self.events.iter().map(|event| self.event_json(event)).collect()
    }

    fn event_json(&self, event: &FoundEvent) -> Value {
        let row = event.row.as_ref().map(|row| {
            json!({
                "table": row.table,
                "committed_at": row.committed_unix_us.map(rfc3339),
                "created_at": row.created_unix_us.map(rfc3339),
                "status": row.polled.as_ref().map(|polled| &polled.status),
                "failure_reason": row.polled.as_ref().map(|polled| &polled.failure_reason),
            })
        });
        let published = event.records.iter().map(|record| {
            json!({
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": rfc3339(record.written_unix_us),
            })
        });
        let letters = event.letters.iter().map(|letter| {
            json!({
                "attempts": letter.attempts,
                "error_class": letter.error_class,
                "error_msg": letter.error_msg,
                "state": letter.state,
                "failed_at": rfc3339(letter.failed_unix_us),
            })
        });
        json!({
            "id": event.id,
            "key": event.key,
            "row": row,
            "lsn": event.lsn.map(|lsn| lsn.to_string()),
            "commit_ts": event.commit_unix_us.map(rfc3339),
            "slot_passed": event.slot_passed,
            "published": published.collect::<Vec<_>>(),
            "dead_letters": letters.collect::<Vec<_>>(),
            "state": event.state.name(),
            "trace_id": event.trace_id(),
            "text": sentences(event, self.slot.as_ref()),
        })
    }
}

fn event_of<'a>(events: &'a mut BTreeMap<String, FoundEvent>, id: &str) -> &'a mut FoundEvent {
    let new = || FoundEvent { id: id.to_owned(), ..FoundEvent::default() };
    events.entry(id.to_owned()).or_insert_with(new)
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

//! Puts together what Postgres, the dead-letter topic and the broker know of the events. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::event::{
    Completeness, EventLetter, EventSighting, EventState, FoundEvent, OutboxRow, PublishedRecord,
    SlotPosition,
};
use super::sentences::sentences;
use crate::base::time::rfc3339;
use crate::sink::search::SearchRoute;

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

    /// Adds the events that were found. `letters_read` is whether every dead letter was read, `complete`
    /// are the routes whose records were all read.
    pub(super) fn add(
        &mut self,
        rows: Vec<OutboxRow>,
        letters: &[EventSighting<EventLetter>],
        records: &[EventSighting<PublishedRecord>],
        letters_read: bool,
        complete: &[SearchRoute],
    ) {
        let mut events = EventsById::new();
        for row in rows {
            let of_id = events.entry(row.id.clone()).or_default();
            let is_shown = |event: &FoundEvent| {
                event.row.as_ref().is_some_and(|shown| shown.table == row.table)
            };
            if of_id.iter().any(is_shown) {
                let (id, table) = (row.id, row.table);
                let another = format!("another row of event {id} in {table}: one row is shown");
                self.not_searched.push(another);
                continue;
            }
            of_id.push(FoundEvent::of_row(row));
            let tables = of_id.len();
            of_id.iter_mut().for_each(|event| event.tables = tables);
        }
        for letter in letters {
            add_sighting(&mut events, letter, |event| &mut event.letters);
        }
        for record in records {
            add_sighting(&mut events, record, |event| &mut event.records);
        }
        self.events = events.into_values().flatten().collect();
        self.events.sort_by_key(FoundEvent::order);
        if let Some(more) = self.events.len().checked_sub(EVENTS_MAX).filter(|more| *more > 0) {
            self.events.drain(..more);
            self.not_searched
                .push(format!("{more} older events: the newest {EVENTS_MAX} are shown"));
        }
        for event in &mut self.events {
            let route = event.row.as_ref().and_then(OutboxRow::route);
            let records_read = route.is_some_and(|route| complete.contains(&route));
            event.judge(self.slot.as_ref(), Completeness { letters_read, records_read });
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

/// The events of each id: one, or one for each table of which a row has the id.
type EventsById = BTreeMap<String, Vec<FoundEvent>>;

/// Adds a record or a dead letter to the event of its id. Of several events it belongs to one whose row may
/// lead to its topic; if that is true of several or of none, it may belong to each of them.
fn add_sighting<T: Clone>(
    events: &mut EventsById,
    sighting: &EventSighting<T>,
    list: impl Fn(&mut FoundEvent) -> &mut Vec<T>,
) {
    let EventSighting { event_id: id, topic, of, .. } = sighting;
    let of_id = events.entry(id.clone()).or_default();
    if of_id.is_empty() {
        of_id.push(FoundEvent { id: id.clone(), ..FoundEvent::default() });
    }
    // A row whose topic is not known may lead anywhere.
    let may_lead = |event: &FoundEvent| {
        let known = event.row.as_ref().and_then(|row| row.topic.as_ref());
        known.is_none_or(|known| known == topic)
    };
    let is_decided = of_id.iter().any(may_lead);
    let found: Vec<&mut FoundEvent> =
        of_id.iter_mut().filter(|event| !is_decided || may_lead(event)).collect();
    let is_ambiguous = found.len() > 1;
    for event in found {
        match is_ambiguous {
            true => event.is_ambiguous = true,
            false => event.learn(sighting),
        }
        list(event).push(of.clone());
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

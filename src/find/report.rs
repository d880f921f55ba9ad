//! Puts together what Postgres, the dead-letter topic and the broker know of the events. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::event::{
    Completeness, EventLetter, EventSighting, EventState, FoundEvent, OutboxRow, PublishedRecord,
    SlotPosition,
};
use super::sentences::sentences;
use crate::base::template::Template;
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
    /// The outbox tables, and where the route of each leads.
    pub(crate) tables: Vec<(String, Template)>,
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
            add_sighting(&mut events, &self.tables, letter, |event| &mut event.letters);
        }
        for record in records {
            add_sighting(&mut events, &self.tables, record, |event| &mut event.records);
        }
        events.values_mut().for_each(|of_id| doubt_rows_beside_gone(of_id));
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
                "topic": letter.topic,
                "partition": letter.position.partition,
                "offset": letter.position.offset,
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

/// The events of each id: one, or one for each table of which a row has the id, and one whose row is gone.
type EventsById = BTreeMap<String, Vec<FoundEvent>>;

/// Adds a record or a dead letter to the event of its id. Of several events it belongs to one whose row may
/// lead to its topic; if that is true of several or of none, it may belong to each of them. If it is true of
/// none, but the route of another of `tables` leads there, it is of an event whose row is gone.
fn add_sighting<T: Clone>(
    events: &mut EventsById,
    tables: &[(String, Template)],
    sighting: &EventSighting<T>,
    list: impl Fn(&mut FoundEvent) -> &mut Vec<T>,
) {
    let EventSighting { event_id: id, topic, of, .. } = sighting;
    let of_id = events.entry(id.clone()).or_default();
    // A row whose topic is not known may lead anywhere.
    let may_lead = |event: &FoundEvent| {
        event.row.as_ref().is_some_and(|row| row.topic.as_ref().is_none_or(|known| known == topic))
    };
    let is_decided = of_id.iter().any(may_lead);
    let rows: Vec<&OutboxRow> = of_id.iter().filter_map(|event| event.row.as_ref()).collect();
    let leads_there = |(table, topics): &(String, Template)| {
        rows.iter().all(|row| row.table != *table) && topics.could_become(topic)
    };
    let is_of_other = !topic.is_empty() && tables.iter().any(leads_there);
    let is_of_gone = !is_decided && (rows.is_empty() || is_of_other);
    if is_of_gone && of_id.iter().all(|event| event.row.is_some()) {
        of_id.push(FoundEvent { id: id.clone(), ..FoundEvent::default() });
    }
    let is_its_event = |event: &&mut FoundEvent| match is_decided {
        true => may_lead(event),
        false => event.row.is_none() == is_of_gone,
    };
    let found: Vec<&mut FoundEvent> = of_id.iter_mut().filter(is_its_event).collect();
    let is_ambiguous = found.len() > 1;
    for event in found {
        match is_ambiguous {
            true => event.is_ambiguous = true,
            false => event.learn(sighting),
        }
        list(event).push(of.clone());
    }
}

/// A row of which nothing else was found may have led to the topic of the other event of its id, before its
/// route was changed.
fn doubt_rows_beside_gone(of_id: &mut [FoundEvent]) {
    let has_gone = of_id.iter().any(|event| event.row.is_none());
    for event in of_id.iter_mut().filter(|_| has_gone) {
        let is_bare = event.records.is_empty() && event.letters.is_empty();
        event.is_ambiguous |= event.row.is_some() && is_bare;
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

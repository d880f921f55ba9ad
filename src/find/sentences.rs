//! The facts of an event, a line for each, in the order in which they happened. Pure.

use super::event::{
    EventLetter, EventState, EventStateReason, FoundEvent, OutboxRow, PublishedRecord,
    SlotPosition, SlotReader,
};
use crate::base::figures::binary_size;
use crate::base::text::{escaped, quoted};
use crate::base::time::rfc3339;
use crate::dead_letter::record::PartitionOffset;

pub(crate) fn sentences(event: &FoundEvent, slot: Option<&SlotPosition>) -> Vec<String> {
    let mut lines = vec![event.row.as_ref().map_or_else(|| "row: none was found".to_owned(), row)];
    if event.tables > 1 {
        lines.push(format!("id: rows of {} tables have it", event.tables));
    }
    let is_polled = event.row.as_ref().is_some_and(|row| row.polled.is_some());
    lines.extend(slot.filter(|_| !is_polled).map(|slot| commit(event, slot)));
    lines.extend(event.letters.iter().map(letter));
    if let Some(letter) = event.letters.iter().find(|letter| letter.state == "open") {
        lines.push(advice(event, letter, is_polled));
    }
    lines.extend(event.records.iter().map(record));
    lines.extend(conclusion(event, slot));
    lines.extend(event.trace_id().map(|id| format!("trace: {id}")));
    lines
}

/// The commands for an event with an open dead letter. A row that is polled is published by its row, or will be.
fn advice(event: &FoundEvent, letter: &EventLetter, is_polled: bool) -> String {
    let id = quoted(&event.id);
    let parked_key = event.key.as_deref().filter(|_| letter.is_of_parked_key).map(quoted);
    match (is_polled, event.state, letter.not_replayable, parked_key) {
        (true, EventState::DeadLettered, ..) => format!(
            "retry: once its cause is removed: walrelay outbox retry {id}; walrelay dlq discard {id}"
        ),
        (true, ..) => format!("discard: its row is enough: walrelay dlq discard {id}"),
        (false, _, Some(why), _) => format!(
            "replay: not possible: {}; publish the event anew from its source, then: walrelay dlq discard {id} (docs/dead-letters.md, \"Replay\")",
            why.reason()
        ),
        // All events of the key, which keeps their order.
        (false, _, None, Some(key)) => format!(
            "replay: walrelay dlq show {id}; once its cause is removed: walrelay dlq replay --key={key}, then: walrelay dlq release --key={key}"
        ),
        (false, _, None, None) => format!(
            "replay: walrelay dlq show {id}; once its cause is removed: walrelay dlq replay {id}"
        ),
    }
}

fn row(row: &OutboxRow) -> String {
    let mut text = format!("row: {}", escaped(&row.table));
    for (what, at) in [("created", row.created_unix_us), ("committed", row.committed_unix_us)] {
        text += &at.map(|at| format!(", {what} at {}", rfc3339(at))).unwrap_or_default();
    }
    if let Some(polled) = &row.polled {
        text += &format!(", status {}", escaped(&polled.status));
        let failed = polled.retry_count.filter(|count| *count > 0);
        text += &failed.map(|count| format!(", {count} failed attempts")).unwrap_or_default();
        let reason = polled.failure_reason.as_ref();
        text += &reason.map(|reason| format!(": {}", escaped(reason))).unwrap_or_default();
    }
    text
}

fn commit(event: &FoundEvent, slot: &SlotPosition) -> String {
    let lsn = event.lsn.map_or_else(|| "not known".to_owned(), |lsn| lsn.to_string());
    let at = event.commit_unix_us.map(|at| format!(", at {}", rfc3339(at))).unwrap_or_default();
    let SlotPosition { name, confirmed, .. } = slot;
    let passed = match event.slot_passed {
        Some(true) => format!("slot {name} has passed it"),
        Some(false) => format!("slot {name}, confirmed up to {confirmed}, has not passed it"),
        None => format!("slot {name}, confirmed up to {confirmed}, may have passed it"),
    };
    format!("commit: LSN {lsn}{at}; {passed}")
}

fn letter(letter: &EventLetter) -> String {
    let EventLetter { topic, position, attempts, error_class, error_msg, state, .. } = letter;
    let PartitionOffset { partition, offset } = position;
    let (topic, class, error) = (escaped(topic), escaped(error_class), escaped(error_msg));
    format!(
        "dead letter: {state}; at {}, topic {topic}, partition {partition}, offset {offset}, attempts {attempts}, {class}: {error}",
        rfc3339(letter.failed_unix_us)
    )
}

fn record(record: &PublishedRecord) -> String {
    let PublishedRecord { topic, partition, offset, written_unix_us } = record;
    let (topic, at) = (escaped(topic), rfc3339(*written_unix_us));
    format!("record: topic {topic}, partition {partition}, offset {offset}, at {at}")
}

/// The exceptions to the rule that the slot passes only what the broker has confirmed.
const UNLESS: &str =
    "unless another program has read or moved the slot, or its row is older than the slot";

/// Returns the conclusion, where no other line says it.
fn conclusion(event: &FoundEvent, slot: Option<&SlotPosition>) -> Option<String> {
    let lag = || binary_size(slot.map_or(0, |slot| slot.wal_end.bytes_since(slot.confirmed)));
    let is_hidden = slot.is_some_and(|slot| slot.reader == SlotReader::Hidden);
    let place = match event.state {
        EventState::InFlight => "a relay has received it, and the broker has not confirmed it",
        _ if is_hidden => {
            "a relay reads the slot, and this role does not see how far (GRANT pg_read_all_stats)"
        }
        _ => "no relay has received it",
    };
    let is_filtered = event.row.as_ref().is_some_and(|row| row.is_filtered);
    let excluded =
        if is_filtered { "the row filter of the publication excludes its row, " } else { "" };
    let text = match event.reason {
        EventStateReason::Seen => return None,
        EventStateReason::Passed => format!("the slot has passed it, as it does when the broker has confirmed it: it was published, {UNLESS}"),
        EventStateReason::PassedUnread => format!("the slot has passed it, and the dead letters could not be read: it was published or became a dead letter, {UNLESS}"),
        EventStateReason::Filtered => "the slot has passed it, and not everything could be searched: the row filter of the publication may exclude its row".to_owned(),
        EventStateReason::NotPassed => format!("not published: {place}; the slot is {} behind", lag()),
        EventStateReason::Lags => format!("probably not published: {place}; the slot is {} behind, and not everything could be searched", lag()),
        EventStateReason::Missing => format!("the slot has passed it, and there is neither a record in its partition nor a dead letter: {excluded}its row is older than the slot or the publication, its record is older than --since or was compacted, or the topic had fewer partitions"),
        EventStateReason::NotPublished => "the publication leaves its table out: it is not delivered".to_owned(),
        EventStateReason::SameId => "rows of several tables have its id, or had it, and it is not known to which of them a record or a dead letter belongs".to_owned(),
        EventStateReason::Nothing => "whether it was published is not known".to_owned(),
    };
    Some(format!("state: {text}"))
}

#[cfg(test)]
#[path = "sentences_tests.rs"]
mod tests;

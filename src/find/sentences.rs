//! What is known of an event, in plain sentences, in the order in which it happened. Pure.

use super::event::{
    EventLetter, EventState, EventStateReason, FoundEvent, OutboxRow, SlotPosition,
};
use crate::base::figures::binary_size;
use crate::base::text::escaped;
use crate::base::time::rfc3339;

pub(crate) fn sentences(event: &FoundEvent, slot: Option<&SlotPosition>) -> Vec<String> {
    let mut lines = vec![row(event)];
    lines.extend(commit(event, slot));
    lines.extend(event.letters.iter().map(letter));
    lines.extend(records(event));
    lines.extend(conclusion(event, slot));
    lines.extend(event.trace_id().map(|id| format!("Its trace is {id}.")));
    lines
}

fn row(event: &FoundEvent) -> String {
    let Some(row) = &event.row else { return "No row of it was found.".to_owned() };
    let OutboxRow { table, created_unix_us, committed_unix_us, .. } = row;
    let created = created_unix_us.map(|at| format!(", created at {}", rfc3339(at)));
    let committed = committed_unix_us.map(|at| format!(", committed at {}", rfc3339(at)));
    let times = created.unwrap_or_default() + &committed.unwrap_or_default();
    format!("Its row is in {}{times}.", escaped(table))
}

fn commit(event: &FoundEvent, slot: Option<&SlotPosition>) -> Option<String> {
    if event.row.as_ref().is_some_and(|row| row.polled.is_some()) {
        return None;
    }
    let slot = slot?;
    let name = &slot.name;
    let passed = match event.slot_passed {
        Some(true) => format!("slot {name} has passed it"),
        Some(false) => {
            format!("slot {name} has not passed it: it is confirmed up to {}", slot.confirmed)
        }
        None => format!(
            "whether slot {name}, confirmed up to {}, has passed it is not known",
            slot.confirmed
        ),
    };
    Some(match event.lsn {
        Some(lsn) => {
            let at = event.commit_unix_us.map(|at| format!(" at {}", rfc3339(at)));
            format!("It was committed{} in the log at {lsn}; {passed}.", at.unwrap_or_default())
        }
        None => format!("Its place in the log is not known; {passed}."),
    })
}

fn letter(letter: &EventLetter) -> String {
    let EventLetter { attempts, error_class, error_msg, state, failed_unix_us } = letter;
    let times = if *attempts == 1 { "attempt" } else { "attempts" };
    format!(
        "It became a dead letter at {}, after {attempts} {times}, for {}: {}. The dead letter is {state}.",
        rfc3339(*failed_unix_us),
        escaped(error_class),
        escaped(error_msg.trim_end_matches('.')),
    )
}

fn records(event: &FoundEvent) -> Vec<String> {
    let record = |(at, record): (usize, &super::event::PublishedRecord)| {
        let verb = if at == 0 { "It was published to" } else { "It was also published to" };
        format!(
            "{verb} {}, partition {}, offset {}, with the time {}.",
            escaped(&record.topic),
            record.partition,
            record.offset,
            rfc3339(record.written_unix_us)
        )
    };
    event.records.iter().enumerate().map(record).collect()
}

/// What follows, where it does not stand in the other sentences already.
fn conclusion(event: &FoundEvent, slot: Option<&SlotPosition>) -> Option<String> {
    let lag = binary_size(slot.map_or(0, |slot| slot.wal_end.bytes_since(slot.confirmed)));
    let place = match event.state {
        EventState::InFlight => "a relay has received it, and the broker has not confirmed it",
        _ => "no relay has received it yet",
    };
    Some(match event.reason {
        EventStateReason::Seen => return polled(event.row.as_ref()?),
        EventStateReason::Passed => "No dead letter of it was found, and the slot passes only what the broker has confirmed: it was published, if its row is not older than the slot.".to_owned(),
        EventStateReason::PassedUnread => "It was published, or it became a dead letter: the dead letters could not be read.".to_owned(),
        EventStateReason::NotPassed => format!("It is not published yet: {place}; the slot is {lag} behind."),
        EventStateReason::Lags => format!("It is probably not published yet: {place}; the slot is {lag} behind, and not everything could be searched."),
        EventStateReason::Missing => "The slot has passed it, and yet it was found neither at its destination nor among the dead letters: its row is older than the slot or the publication, or its record is older than what was searched (--since).".to_owned(),
        EventStateReason::NotPublished => "The publication leaves its table out, so it is not delivered.".to_owned(),
        EventStateReason::Nothing => "Whether it was published is not known.".to_owned(),
    })
}

fn polled(row: &OutboxRow) -> Option<String> {
    let polled = row.polled.as_ref()?;
    let failed = polled.retry_count.filter(|count| *count > 0);
    let failed = failed.map(|count| format!(", after {count} failed attempts"));
    let reason = polled.failure_reason.as_ref().map(|reason| format!(": {}", escaped(reason)));
    Some(format!(
        "Its row has the status {}{}{}.",
        escaped(&polled.status),
        failed.unwrap_or_default(),
        reason.unwrap_or_default()
    ))
}

#[cfg(test)]
#[path = "sentences_tests.rs"]
mod tests;

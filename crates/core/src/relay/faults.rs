//! The faults that the loop may stop with.

use std::path::Path;
use std::time::Duration;

use super::slot_history::Mover;
use crate::base::error::{Exit, Fault};
use crate::base::lsn::Lsn;
use crate::base::stop::{EARLIER_TIMELINE, WENT_BACK};
use crate::base::time::rfc3339;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterSettings};
use crate::delivery::breaker::Burst;
use crate::delivery::flights::NotInFlight;
use crate::delivery::history::{CommitId, OtherHistory};
use crate::sink::{Disposition, Failure};
use crate::source::faults::{pass_gap, publication_gap};
use crate::source::server::ConnectErrorKind;
use crate::source::settings::SourceSettings;
use crate::source::stream::StreamError;

/// An event that cannot be published, or could not in all its attempts.
pub fn refused(failure: &Failure, commit_lsn: Lsn, attempts: u32) -> Fault {
    let Failure { class, subject, reason, mend, .. } = failure;
    let after = if attempts > 1 { format!(" after {attempts} attempts") } else { String::new() };
    Fault::new(
        Exit::Halted,
        "event.refused",
        format!("an event could not be published{after}: {reason} ({class})"),
        format!("{subject}, log position {commit_lsn}"),
        format!("{mend}\nthen start again: this event is held, nothing is lost or skipped"),
    )
}

/// No event can be published with these settings.
pub fn unable(failure: &Failure) -> Fault {
    let Failure { class, subject, reason, mend, .. } = failure;
    Fault::new(
        Exit::Sink,
        "sink.unable",
        format!("no event can be published in this way: {reason} ({class})"),
        subject.clone(),
        format!("{mend}\nthen start again: events are held, nothing is lost or skipped"),
    )
}

/// A row or message is no event.
pub fn unpublishable(class: &str, text: &str, commit_lsn: Lsn) -> Fault {
    Fault::new(
        Exit::Halted,
        "event.unpublishable",
        format!("{text} ({class})"),
        format!("log position {commit_lsn}"),
        "correct [route] so that it can carry this row, then start again: it is held, nothing is lost or skipped",
    )
}

/// Too many dead letters: something else is wrong than the events.
pub fn breaker_open(burst: &Burst, next: &DeadLetterCause, settings: &DeadLetterSettings) -> Fault {
    let Burst { letters, class } = burst;
    let window_s = settings.burst_window.as_secs();
    let DeadLetterCause { class: next_class, reason, position, .. } = next;
    Fault::new(
        Exit::Halted,
        "dead-letter.breaker-open",
        format!(
            "{letters} dead letters within {window_s} s, most of them {class}: something else is wrong than the events; the next would be {next_class}: {reason}"
        ),
        format!(
            "event at log position {}; dead_letter.burst_max = {}",
            position.commit_lsn, settings.burst_max
        ),
        "walrelay dlq list shows what they have in common: mend that; if all of them are to be dead letters, raise dead_letter.burst_max
then: walrelay resume. Until then every start ends with this; this event is held, nothing is lost or skipped",
    )
    .standing(position.commit_lsn, position.commit_lsn)
}

/// The dead-letter topic will never accept this dead letter, or the broker no event at all.
pub fn dead_letter_refused(failure: &Failure) -> Fault {
    if failure.disposition == Disposition::Halt {
        return unable(failure);
    }
    let Failure { class, subject, reason, mend, .. } = failure;
    Fault::new(
        Exit::Halted,
        "dead-letter.refused",
        format!("a dead letter could not be written, though it was cut to fit: {reason} ({class})"),
        subject.clone(),
        format!("{mend}\nthen start again: this event is held, nothing is lost or skipped"),
    )
}

/// The relay was stopped, and the broker did not confirm everything in time.
pub fn drain_timed_out(left: usize, waited: Duration) -> Fault {
    let waited_s = waited.as_secs();
    Fault::new(
        Exit::Failed,
        "stop.unsettled",
        format!(
            "{left} events were not confirmed before the end (drain_timeout {waited_s} s); nothing is lost: they will be published again at the next start"
        ),
        "delivery.drain_timeout",
        "see why the broker does not answer, or raise delivery.drain_timeout",
    )
}

/// The stream is not what it should be.
pub fn protocol(text: &str, place: &str) -> Fault {
    Fault::new(
        Exit::Source,
        "source.protocol",
        format!("the stream cannot be read: {text}"),
        place,
        "nothing was confirmed past this point; report it with the server's version and the table's definition",
    )
}

/// The sink reports on an event that it does not have.
pub fn receipt(error: &NotInFlight) -> Fault {
    let mend = "this is a defect of the relay: report it; nothing that was not confirmed has been reported";
    Fault::new(Exit::Failed, "sink.bad-receipt", error.to_string(), "", mend)
}

/// The database was replaced while the relay was running.
pub fn system_changed(source: &SourceSettings, known: &str, found: &str) -> Fault {
    Fault::new(
        Exit::Slot,
        "slot.other-system",
        format!("this is another database system ({found}); events so far came from {known}"),
        format!("slot {}", source.slot),
        "check source.url; if the database was replaced on purpose, see that nothing of the old one is missing, then: walrelay resume",
    )
    .standing(Lsn::ZERO, Lsn::ZERO)
}

/// The slot was moved, and no other relay was seen to move it.
pub fn slot_moved(source: &SourceSettings, known: Lsn, found: Lsn, mover: &Mover) -> Fault {
    let who = match mover {
        Mover::Recreated => "it was dropped and created again".to_owned(),
        Mover::Program(name) if name.is_empty() => {
            "an SQL session held it in the meantime and advanced it".to_owned()
        }
        Mover::Program(name) => format!("the program {name:?} held it in the meantime"),
        Mover::Unseen => {
            "it was moved while this relay did not hold it, and no other relay was seen \
             to hold it"
                .to_owned()
        }
    };
    Fault::new(
        Exit::Slot,
        "slot.moved",
        format!(
            "the slot stands at {found}, ahead of {known}, the newest position that is known to be confirmed: \
             {who}; events between the two may be lost"
        ),
        format!("slot {}", source.slot),
        format!(
            "find out who advanced the slot (pg_replication_slot_advance), re-created it or read it (pg_recvlogical); \
             relays that share a slot need the same role and application_name in source.url; \
             compare the outbox rows committed between {known} and {found} with the broker, then: \
             walrelay resume, to go on from {found}"
        ),
    )
    .standing(known, found)
}

/// The database ends before a position that was read from it. `slot` is where the slot stands. The
/// range in doubt begins there, because rows that were written after the restore have moved the end of the WAL.
pub fn went_back(source: &SourceSettings, seen: Lsn, found: Lsn, slot: Lsn) -> Fault {
    let from = slot.min(found);
    Fault::new(
        Exit::Slot,
        WENT_BACK,
        format!(
            "postgres ends at {found}, but this relay has read up to {seen}: the database was \
             restored from a copy, or lost WAL, without a new timeline"
        ),
        format!("slot {}", source.slot),
        format!(
            "compare the outbox with the broker: events between {from} and {seen} were published \
             and may be gone from the database; then: walrelay resume, to go on from the slot"
        ),
    )
    .standing(from, seen)
}

/// The server is on an earlier timeline than the `known` one, which this relay has read.
pub fn earlier_timeline(source: &SourceSettings, known: u32, found: u32) -> Fault {
    Fault::new(
        Exit::Slot,
        EARLIER_TIMELINE,
        format!(
            "postgres is on timeline {found}, but this relay has read timeline {known}: this server is a primary \
             from before a failover, or was restored from a copy of that time"
        ),
        format!("slot {}", source.slot),
        "if another server is the primary, stop this one or take it out of source.url; compare the outbox with the broker: \
         events of the later timeline were published and may be missing here; then: walrelay resume",
    )
    .standing(Lsn::ZERO, Lsn::ZERO)
}

/// The database sends other transactions where it has sent some before, which this relay has `read`. `slot` is
/// where the slot stood when the session began.
pub fn other_history(source: &SourceSettings, other: &OtherHistory, slot: Lsn, read: Lsn) -> Fault {
    let name = |it: &CommitId| {
        let at = rfc3339(it.commit_unix_us);
        format!("transaction {} at {}, committed {at}", it.xid, it.commit_lsn)
    };
    let OtherHistory { same_until, known, sent } = other;
    let same_until = if same_until.is_zero() { slot } else { *same_until };
    let sent_text = sent.as_ref().map_or("nothing".to_owned(), name);
    let known_text = known.as_ref().map_or("no other one".to_owned(), name);
    Fault::new(
        Exit::Slot,
        WENT_BACK,
        format!(
            "postgres sends {sent_text}, where this relay has read {known_text}: the database was restored \
             from a copy, or lost WAL, without a new timeline; up to {same_until} nothing is known to differ, and this relay has read up to {read}"
        ),
        format!("slot {}", source.slot),
        format!(
            "compare the outbox with the broker: events between {same_until} and {read} were published \
             and may be gone from the database; then: walrelay resume, to go on from the slot, \
             which has not passed the other transactions"
        ),
    )
    .standing(same_until, read)
}

/// No stop stands, and the state file that would have one may be `missing`.
pub fn nothing_to_resume(missing: Option<&Path>) -> Fault {
    let (place, mend) = match missing {
        Some(path) => (
            format!("state file {}", path.display()),
            "the file does not exist: name that of the relay (delivery.state_file, or the \
             StateDirectory of its unit); if it was deleted, start the relay: walrelay run",
        ),
        None => (
            String::new(),
            "start the relay: walrelay run\nif it has stopped under systemd, and delivery.state_file is not \
             set, its file is in the StateDirectory of the unit: STATE_DIRECTORY=/var/lib/walrelay \
             walrelay resume",
        ),
    };
    let what = "no stop stands that would have to be acknowledged";
    Fault::new(Exit::Failed, "resume.nothing", what, place, mend)
}

pub fn stop_unwritable() -> Fault {
    Fault::new(
        Exit::Failed,
        "resume.unwritten",
        "the state file cannot be written, so the stop still stands",
        "delivery.state_file",
        "make room on its disk, or run the command as the user of the relay",
    )
}

pub fn stop_changed() -> Fault {
    Fault::new(
        Exit::Failed,
        "resume.changed",
        "another stop stands by now than the one that was shown",
        "delivery.state_file",
        "walrelay resume, which shows it",
    )
}

pub fn slot_place(source: &SourceSettings) -> String {
    format!("slot {}, publication {}", source.slot, source.publication)
}

/// The fault of a stream's error, if a new connection would end with the same error.
pub fn of_stream(error: &StreamError, source: &SourceSettings) -> Option<Fault> {
    let place = slot_place(source);
    let told = match error {
        StreamError::Ended | StreamError::Io(_) => return None,
        StreamError::Protocol(_) | StreamError::Oversized(_) => {
            return Some(protocol(&error.to_string(), &place));
        }
        // A new connection may do better, and if not, its preflight says why.
        StreamError::Server(told)
            if told.kind() != ConnectErrorKind::Fatal || told.sqlstate.is_empty() =>
        {
            return None;
        }
        StreamError::Server(told) => told,
    };
    if told.is_missing_publication() {
        return Some(publication_gap(source, &told.to_string()));
    }
    // A value that cannot be converted, or a row above 1 GB: the WAL keeps it, whatever becomes of the row.
    let mend = match told.sqlstate.get(..2) {
        Some("22" | "54") => pass_gap(source),
        _ => "walrelay check".to_owned(),
    };
    Some(Fault::new(Exit::Source, "source.stream-refused", error.to_string(), place, mend))
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;

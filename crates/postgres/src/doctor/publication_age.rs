//! Finds out whether the WAL that a slot still has to deliver is older than the publication. The
//! catalog only shows that it may be; so the stream is read to its end without a status update,
//! which does not move the slot.

use std::time::{Duration, Instant};

use crate::connect::{self, StartReplication};
use crate::facts::SourceFacts;
use crate::faults::{publication_gap, publication_problem};
use crate::publication::{CatalogRow, RowKind};
use crate::settings::SourceSettings;
use crate::stream::{Packet, Stream, StreamError};
use crate::wire;
use walrelay_base::error::Fault;
use walrelay_base::finding::Finding;
use walrelay_base::lsn::Lsn;
use walrelay_base::stop::PUBLICATION_RECREATED;
use walrelay_core::pgoutput::frame::Frame;

const READ_WITHIN: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);

enum ReadThrough {
    /// The publication existed all the time.
    Whole,
    /// It did not; the text is from the server.
    Gap(String),
    /// Why it could not be found out.
    Unknown(String),
}

/// Finds the events of the WAL of the slot that `run` would refuse; none if the slot is in use, if
/// it has delivered everything, or if its WAL begins after the publication was created.
pub async fn inspect(settings: &SourceSettings, facts: &SourceFacts) -> Vec<Finding> {
    let (Some(publication), Some(slot)) = (&facts.published.publication, &facts.slot) else {
        return Vec::new();
    };
    let end = facts.server.current_lsn;
    let (Some(horizon), None) = (slot.catalog_xmin, slot.active_pid) else { return Vec::new() };
    let Some(own) = publication.own_row() else { return Vec::new() };
    if slot.confirmed_flush >= end {
        return Vec::new();
    }
    let is_young = |xmin: u32| is_not_before(xmin, horizon);
    let (name, slot) = (&settings.publication, &slot.name);
    let warn = |text| Finding::warn("publication.young", text);
    if is_young(own.xmin) {
        match read_through(settings, end).await {
            ReadThrough::Whole => {}
            ReadThrough::Gap(said) => return vec![Finding::fail(publication_gap(settings, &said))],
            ReadThrough::Unknown(why) => {
                return vec![warn(format!(
                    "publication {name} was made or altered while slot {slot} stood still, and it is not \
                     known whether rows were written without it ({why}): run ends with \
                     publication.missing if it comes to such a row"
                ))];
            }
        }
    }
    let joined_later = |row: &&CatalogRow| {
        matches!(row.kind, RowKind::Table | RowKind::Schema)
            && row.xmin != own.xmin
            && is_young(row.xmin)
    };
    let later = publication.rows.iter().filter(joined_later);
    let warnings = later.map(|row| {
        warn(format!(
            "{} was put into publication {name} while slot {slot} stood still: rows that were \
             written before are not published; compare them with the broker \
             (docs/operations.md, \"A gap in the publication\")",
            row.name
        ))
    });
    warnings.collect()
}

/// Transaction ids wrap around. What a slot still has to deliver was written by transactions that
/// had not ended before its horizon.
fn is_not_before(xid: u32, horizon: u32) -> bool {
    (xid.wrapping_sub(horizon) as i32) >= 0
}

/// The fault of a relay that remembers nothing: the publication was changed after it was made, and
/// while the slot stood still or shortly before, so rows may be missing. `decoded` counts what the
/// slot has delivered to earlier processes; before the first of them nothing could go wrong.
pub fn in_doubt(
    settings: &SourceSettings,
    facts: &SourceFacts,
    decoded: Option<i64>,
) -> Option<Fault> {
    let (publication, slot) = (facts.published.publication.as_ref()?, facts.slot.as_ref()?);
    let end = facts.server.current_lsn;
    if decoded.is_none_or(|count| count == 0) || slot.confirmed_flush >= end {
        return None;
    }
    let changed = changed_since(slot.catalog_xmin?, &publication.rows)?;
    let (name, slot_name) = (&settings.publication, &slot.name);
    let what = match changed.kind {
        RowKind::Publication => format!("publication {name} was altered"),
        _ => format!("{} was put into publication {name}", changed.name),
    };
    let fault = publication_problem(
        PUBLICATION_RECREATED,
        format!(
            "{what} while slot {slot_name} stood still, or shortly before; without a state file it \
             is not known whether for the first time"
        ),
        format!(
            "rows that were written before that, and after the slot stood still, are not published\n{}",
            super::fingerprint::compare_and_resume(settings)
        ),
    );
    Some(fault.standing(slot.confirmed_flush, end))
}

/// A row that was not written by the transaction that made the publication, and not before the
/// `horizon`.
fn changed_since(horizon: u32, rows: &[CatalogRow]) -> Option<&CatalogRow> {
    use RowKind::{Publication, Schema, Table};
    let own = || rows.iter().filter(|row| matches!(row.kind, Publication | Table | Schema));
    let first = own()
        .map(|row| row.xmin)
        .reduce(|one, other| if is_not_before(one, other) { other } else { one })?;
    own().find(|row| row.xmin != first && is_not_before(row.xmin, horizon))
}

async fn read_through(settings: &SourceSettings, end: Lsn) -> ReadThrough {
    let start = StartReplication::of(settings, false);
    let session = match connect::open_stream(&settings.connection, &start).await {
        Ok(session) => session,
        Err(error) => return ReadThrough::Unknown(error.to_string()),
    };
    let now = Instant::now();
    let read = wire::of(session.transport)
        .map_err(StreamError::Io)
        .and_then(|wire| read_until(&mut Stream::new(wire, now), end, now + READ_WITHIN));
    match read {
        Ok(outcome) => outcome,
        Err(StreamError::Server(error)) if error.is_missing_publication() => {
            ReadThrough::Gap(error.to_string())
        }
        Err(error) => ReadThrough::Unknown(error.to_string()),
    }
}

fn read_until(
    stream: &mut Stream,
    end: Lsn,
    deadline: Instant,
) -> Result<ReadThrough, StreamError> {
    while Instant::now() < deadline {
        stream.wait(TICK, None, Instant::now())?;
        let filled = stream.fill(Instant::now());
        while let Some((packet, length)) = stream.peek()? {
            match packet {
                Packet::Notice(notice) if notice.is_skipped_publication() => {
                    return Ok(ReadThrough::Gap(notice.to_string()));
                }
                Packet::Frame(
                    Frame::Keepalive { wal_end, .. } | Frame::XLogData { wal_end, .. },
                ) if wal_end >= end => {
                    return Ok(ReadThrough::Whole);
                }
                Packet::Frame(_) | Packet::Notice(_) | Packet::Other => stream.consume(length),
            }
        }
        filled?;
    }
    Ok(ReadThrough::Unknown(format!("not read through within {} s", READ_WITHIN.as_secs())))
}

#[cfg(test)]
#[path = "publication_age_tests.rs"]
mod tests;

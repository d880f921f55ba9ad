//! One dead letter with everything that happened to it.

use super::fold::{Fold, Known};
use super::record::{DeadLetter, DeadLetterId, LogRecord};
use crate::base::error::{Exit, Fault};
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::record::PartitionOffset;
use crate::sink::log::ReadFrom;

/// Two tables may use the same ids; more are not told.
const FOUND_MAX: usize = 16;
/// Longer histories lose their beginning.
const HISTORY_MAX: usize = 100;

/// A dead letter with its history.
#[derive(Debug)]
pub struct Found {
    /// The letter as it was written first since it is open.
    pub letter: DeadLetter,
    /// What is known of it.
    pub known: Known,
    /// Every record about it, oldest first.
    pub history: Vec<Step>,
}

/// One record about a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When; microseconds since the Unix epoch.
    pub unix_us: i64,
    /// `dead-lettered`, `replayed` or `discarded`.
    pub what: &'static str,
    /// By whom.
    pub by: String,
    /// Where it stands.
    pub position: PartitionOffset,
}

/// What was found so far.
struct Gathered {
    identity: DeadLetterId,
    letter: Option<DeadLetter>,
    history: Vec<Step>,
}

impl DeadLetterTopic<'_> {
    /// Everything about the dead letters of one event id; a fault when there are none.
    pub fn find(&self, event_id: &str) -> Result<Vec<Found>, Fault> {
        let mut gathered: Vec<Gathered> = Vec::new();
        let mut fold = Fold::default();
        let mut reader = self.reader(ReadFrom::Beginning)?;
        self.each(&mut reader, |record| {
            let Some((identity, step)) = step(&record, event_id) else { return Ok(true) };
            fold.apply(&record);
            let known = gathered.iter().position(|one| one.identity == identity);
            let at = known.unwrap_or(gathered.len());
            if at == FOUND_MAX {
                return Ok(true);
            }
            if known.is_none() {
                gathered.push(Gathered { identity, letter: None, history: Vec::new() });
            }
            let one = &mut gathered[at];
            if one.history.len() == HISTORY_MAX {
                one.history.remove(0);
            }
            one.history.push(step);
            if let LogRecord::DeadLetter(letter) = record
                && fold.known(&letter).is_some()
            {
                one.letter = Some(*letter);
            }
            Ok(true)
        })?;
        let found: Vec<Found> = gathered
            .into_iter()
            .filter_map(|one| {
                let letter = one.letter?;
                let known = fold.known(&letter)?;
                Some(Found { letter, known, history: one.history })
            })
            .collect();
        if found.is_empty() { Err(unknown(event_id, reader.records)) } else { Ok(found) }
    }
}

/// What a record says of the event.
fn step(record: &LogRecord, event_id: &str) -> Option<(DeadLetterId, Step)> {
    match record {
        LogRecord::DeadLetter(letter) if letter.event_id == event_id => {
            let (by, position) = (letter.relay.clone(), letter.position);
            let what = "dead-lettered";
            Some((letter.identity(), Step { unix_us: letter.failed_unix_us, what, by, position }))
        }
        LogRecord::Resolution(resolution) if resolution.event_id == event_id => {
            let (by, position) = (resolution.relay.clone(), resolution.position);
            let (unix_us, what) = (resolution.resolved_unix_us, resolution.kind.name());
            Some((resolution.identity(), Step { unix_us, what, by, position }))
        }
        _ => None,
    }
}

fn unknown(event_id: &str, records: u64) -> Fault {
    Fault::new(
        Exit::Failed,
        "dead-letter.unknown",
        format!("there is no dead letter of event {event_id:?} among {records} records"),
        "",
        "walrelay dlq list --state all",
    )
}

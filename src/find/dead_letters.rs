//! The dead letters of the events that are looked for, in one reading of the log.

use std::time::{Duration, Instant};

use super::event::{EventLetter, EventSighting, TRACEPARENT};
use super::request::{Wanted, WantedSpellings};
use crate::base::error::Fault;
use crate::base::figures::counted;
use crate::base::lsn::Lsn;
use crate::dead_letter::fold::DeadLetterIndex;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::record::{DeadLetter, LogRecord};
use crate::dead_letter::writer::CLASS_PARKED;
use crate::sink::log::{LogRead, ReadFrom};
use crate::sink::search::{SearchLimits, SearchReport};

const PATIENCE: Duration = Duration::from_millis(200);
/// How long the broker may send nothing: the destinations are to be searched as well.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Dead letters that are kept, the newest.
const LETTERS_MAX: usize = 200;

pub(super) fn letters(
    topic: &DeadLetterTopic<'_>,
    wanted: &WantedSpellings<'_>,
    from: ReadFrom,
    limits: &SearchLimits<'_>,
) -> Result<(Vec<EventSighting<EventLetter>>, SearchReport), Fault> {
    let mut reader = topic.reader(from)?;
    let (mut index, mut letters) = (DeadLetterIndex::default(), Vec::new());
    let mut report = SearchReport::default();
    let mut records = 0;
    let mut is_cut = false;
    let mut silence = Duration::ZERO;
    let silent = format!("the broker has sent none for {} s", SILENCE_MAX.as_secs());
    let name = &topic.address.topic;
    loop {
        let is_silent = (silence >= SILENCE_MAX).then_some(silent.as_str());
        if let Some(limit) = limits.reached().or(is_silent) {
            let what = format!(
                "the rest of the dead letters in {name}, after {}",
                counted(records, "record")
            );
            report.not_searched.push(format!("{what}: {limit}"));
            break;
        }
        let asked_at = Instant::now();
        match reader.next(PATIENCE)? {
            LogRead::End => {
                let records = counted(records, "record");
                report.searched.push(format!("dead letters in {name}: {records}"));
                break;
            }
            // A leader that does not answer takes longer.
            LogRead::Nothing => silence += asked_at.elapsed().max(PATIENCE),
            LogRead::Entry(record) => {
                silence = Duration::ZERO;
                records += 1;
                if !is_about(&record, wanted) {
                    continue;
                }
                index.apply(&record);
                let LogRecord::DeadLetter(letter) = record else { continue };
                // A dead letter that is written again is the same one.
                if index.known(&letter).is_some() {
                    letters.push(DeadLetter { value: None, ..*letter });
                }
                if letters.len() > LETTERS_MAX {
                    letters.remove(0);
                    is_cut = true;
                }
            }
        }
    }
    if is_cut {
        report.not_searched.push(format!("more dead letters: the newest {LETTERS_MAX} are shown"));
    }
    let found = letters.iter().filter_map(|letter| found(topic, letter, &index)).collect();
    Ok((found, report))
}

fn is_about(record: &LogRecord, wanted: &WantedSpellings<'_>) -> bool {
    let (id, key) = match record {
        LogRecord::DeadLetter(it) => (&it.event_id, &it.key),
        LogRecord::Resolution(it) => (&it.event_id, &it.key),
        LogRecord::Stop(_) | LogRecord::Foreign => return false,
    };
    match wanted.typed {
        Wanted::Id(_) => wanted.is_id(id),
        Wanted::Key(word) => {
            key.as_ref().is_some_and(|key| key.is_named(word) || wanted.any(|bytes| key.is(bytes)))
        }
    }
}

/// The dead letter as it stands in the dead-letter topic.
fn found(
    topic: &DeadLetterTopic<'_>,
    letter: &DeadLetter,
    index: &DeadLetterIndex,
) -> Option<EventSighting<EventLetter>> {
    let known = index.known(letter)?;
    let header = letter.headers.iter().find(|(name, _)| name == TRACEPARENT);
    Some(EventSighting {
        event_id: letter.event_id.clone(),
        topic: letter.topic.clone(),
        key: letter.key.as_ref().map(|key| key.name()),
        lsn: letter.lsn.parse().ok().filter(|lsn: &Lsn| !lsn.is_zero()),
        commit_unix_us: Some(letter.commit_unix_us),
        traceparent: header.map(|(_, value)| String::from_utf8_lossy(value).into_owned()),
        of: EventLetter {
            topic: topic.address.topic.clone(),
            position: letter.position,
            attempts: letter.attempts,
            error_class: letter.error_class.clone(),
            error_msg: letter.error_msg.clone(),
            state: known.state.name(),
            failed_unix_us: letter.failed_unix_us,
            not_replayable: topic.not_replayable(letter),
            is_of_parked_key: letter.parks_key || letter.error_class == CLASS_PARKED,
        },
    })
}

#[cfg(test)]
#[path = "dead_letters_tests.rs"]
mod tests;

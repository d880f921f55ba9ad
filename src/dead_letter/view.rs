//! One dead letter as JSON, with everything that happened to it: the same for the command line and
//! the admin API.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use super::fold::{DeadLetterIndex, KnownLetter};
use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, DeadLetterId, LogRecord, PartitionOffset};
use crate::base::error::{Exit, Fault};
use crate::base::text::shown;
use crate::base::time::rfc3339;
use crate::sink::log::ReadFrom;

/// Two tables may use the same ids; more are not shown.
const FOUND_MAX: usize = 16;
/// Longer histories lose their beginning.
const HISTORY_MAX: usize = 100;

/// A dead letter without its payload.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLetterSummary<'a> {
    pub(crate) event_id: &'a str,
    /// What is no text in it is escaped. One that was cut is named by its hash.
    pub(crate) key: Option<String>,
    pub(crate) topic: &'a str,
    pub(crate) exchange: &'a str,
    pub(crate) error_class: &'a str,
    pub(crate) error_msg: &'a str,
    pub(crate) attempts: u32,
    pub(crate) failed_at: String,
    pub(crate) first_failed_at: String,
    pub(crate) lsn: &'a str,
    pub(crate) commit_ts: String,
    pub(crate) state: &'static str,
    pub(crate) replays: u32,
    pub(crate) parks_key: bool,
    /// Before it was cut.
    pub(crate) value_bytes: u64,
    /// Is the value incomplete?
    pub(crate) cut: bool,
    /// Is more missing of it?
    pub(crate) incomplete: bool,
    pub(crate) relay: &'a str,
    #[serde(flatten)]
    pub(crate) position: PartitionOffset,
}

impl<'a> DeadLetterSummary<'a> {
    pub(crate) fn new(letter: &'a DeadLetter, known: &KnownLetter) -> DeadLetterSummary<'a> {
        let here = letter.value.as_ref().map_or(0, |value| value.len() as u64);
        DeadLetterSummary {
            event_id: &letter.event_id,
            key: letter.key.as_ref().map(|key| key.name()),
            topic: &letter.topic,
            exchange: &letter.exchange,
            error_class: &letter.error_class,
            error_msg: &letter.error_msg,
            attempts: letter.attempts,
            failed_at: rfc3339(letter.failed_unix_us),
            first_failed_at: rfc3339(letter.first_failed_unix_us),
            lsn: &letter.lsn,
            commit_ts: rfc3339(letter.commit_unix_us),
            state: known.state.name(),
            replays: known.replays,
            parks_key: letter.parks_key,
            value_bytes: letter.uncut.as_ref().map_or(here, |uncut| uncut.size_bytes),
            cut: letter.uncut.is_some(),
            incomplete: letter.incomplete,
            relay: &letter.relay,
            position: letter.position,
        }
    }
}

/// Everything about a dead letter.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLetterDetail<'a> {
    #[serde(flatten)]
    pub(crate) summary: DeadLetterSummary<'a>,
    /// Partition that a column gave.
    pub(crate) original_partition: Option<i32>,
    pub(crate) event_type: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    /// Of a value before it was cut.
    pub(crate) value_sha256: Option<&'a str>,
    /// Of a key before it was cut.
    pub(crate) key_bytes: Option<u64>,
    /// How a key began that was cut.
    pub(crate) key_begins: Option<String>,
    /// What is no text in their values is escaped.
    pub(crate) headers: Vec<HeaderText<'a>>,
    /// Every record about it, oldest first.
    pub(crate) history: &'a [HistoryEntry],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// `text` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_encoding: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct HeaderText<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: String,
}

impl<'a> DeadLetterDetail<'a> {
    /// The payload is shown where `with_payload` asks for it.
    pub(crate) fn new(found: &'a FoundLetter, with_payload: bool) -> DeadLetterDetail<'a> {
        let letter = &found.letter;
        let value = letter.value.as_deref().filter(|_| with_payload);
        let payload = value.map(|value| match std::str::from_utf8(value) {
            Ok(text) => (text.to_owned(), "text"),
            Err(_) => (BASE64.encode(value), "base64"),
        });
        let (payload, payload_encoding) = payload.unzip();
        let cut_key = letter.key.as_ref().and_then(|key| Some((key, key.uncut.as_ref()?)));
        let headers = letter.headers.iter();
        DeadLetterDetail {
            summary: DeadLetterSummary::new(letter, &found.known),
            original_partition: letter.partition,
            event_type: letter.event_type.as_deref(),
            content_type: letter.content_type.as_deref(),
            value_sha256: letter.uncut.as_ref().map(|uncut| uncut.sha256.as_str()),
            key_bytes: cut_key.map(|(_, uncut)| uncut.size_bytes),
            key_begins: cut_key.map(|(key, _)| shown(&key.bytes)),
            headers: headers
                .map(|(name, value)| HeaderText { name, value: shown(value) })
                .collect(),
            history: &found.history,
            payload,
            payload_encoding,
        }
    }
}

/// A dead letter with its history.
#[derive(Debug)]
pub(crate) struct FoundLetter {
    /// As it was written first since it is open.
    pub(crate) letter: DeadLetter,
    pub(crate) known: KnownLetter,
    /// Every record about it, oldest first.
    pub(crate) history: Vec<HistoryEntry>,
}

/// One record about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HistoryEntry {
    pub(crate) at: String,
    /// `dead-lettered`, `replayed` or `discarded`.
    pub(crate) what: &'static str,
    /// Who wrote it.
    pub(crate) by: String,
    #[serde(flatten)]
    pub(crate) position: PartitionOffset,
}

/// Everything about the dead letters of one event id; a fault when there are none.
pub(crate) fn find(topic: &DeadLetterTopic<'_>, event_id: &str) -> Result<Vec<FoundLetter>, Fault> {
    let mut histories: Vec<(DeadLetterId, Option<DeadLetter>, Vec<HistoryEntry>)> = Vec::new();
    let (mut index, mut records) = (DeadLetterIndex::default(), 0_u64);
    topic.each(topic.reader(ReadFrom::Beginning)?, |record| {
        records += 1;
        let Some((id, entry)) = history_entry(&record, event_id) else { return Ok(true) };
        index.apply(&record);
        let at = histories.iter().position(|(known, ..)| *known == id).unwrap_or(histories.len());
        if at == FOUND_MAX {
            return Ok(true);
        }
        if at == histories.len() {
            histories.push((id, None, Vec::new()));
        }
        let (_, first, history) = &mut histories[at];
        if history.len() == HISTORY_MAX {
            history.remove(0);
        }
        history.push(entry);
        if let LogRecord::DeadLetter(letter) = record
            && index.known(&letter).is_some()
        {
            *first = Some(*letter);
        }
        Ok(true)
    })?;
    let found = histories.into_iter().filter_map(|(_, letter, history)| {
        let letter = letter?;
        Some(FoundLetter { known: index.known(&letter)?, letter, history })
    });
    let found: Vec<FoundLetter> = found.collect();
    if found.is_empty() { Err(unknown(event_id, records)) } else { Ok(found) }
}

/// What a record says of the event, and about which dead letter.
fn history_entry(record: &LogRecord, event_id: &str) -> Option<(DeadLetterId, HistoryEntry)> {
    let (of, unix_us, what, by, position) = match record {
        LogRecord::DeadLetter(it) => {
            (&it.event_id, it.failed_unix_us, "dead-lettered", &it.relay, it.position)
        }
        LogRecord::Resolution(it) => {
            (&it.event_id, it.resolved_unix_us, it.kind.name(), &it.relay, it.position)
        }
        LogRecord::Foreign => return None,
    };
    if of != event_id {
        return None;
    }
    let entry = HistoryEntry { at: rfc3339(unix_us), what, by: by.clone(), position };
    Some((record.id()?, entry))
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

//! Dead letters as JSON, the same for the command line and the admin API, and one of them with its
//! history.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::{Value, json};

use super::fold::{DeadLetterIndex, KnownDeadLetter};
use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, DeadLetterId, LogRecord, NotReplayable, PartitionOffset};
use crate::base::error::{Exit, Fault};
use crate::base::text::shown;
use crate::base::time::rfc3339;
use crate::sink::log::ReadFrom;

/// Most dead letters per event id that are returned: several tables may use the same ids.
const FOUND_MAX: usize = 16;
/// The most records of a history. A longer one has only the newest.
const HISTORY_MAX: usize = 100;

/// A dead letter without its payload.
pub(crate) fn summary(letter: &DeadLetter, known: &KnownDeadLetter) -> Value {
    json!({
        "event_id": letter.event_id,
        "key": letter.key.as_ref().map(|key| key.name()),
        "topic": letter.topic,
        "exchange": letter.exchange,
        "error_class": letter.error_class,
        "error_msg": letter.error_msg,
        "attempts": letter.attempts,
        "failed_at": rfc3339(letter.failed_unix_us),
        "first_failed_at": rfc3339(letter.first_failed_unix_us),
        "lsn": letter.lsn,
        "commit_ts": rfc3339(letter.commit_unix_us),
        "state": known.state.name(),
        "replays": known.replays,
        "parks_key": letter.parks_key,
        "value_bytes": value_bytes(letter),
        "cut": letter.uncut.is_some(),
        "incomplete": letter.incomplete,
        "relay": letter.relay,
        "system": letter.system,
        "partition": letter.position.partition,
        "offset": letter.position.offset,
    })
}

/// Size of the value before it was cut.
pub(crate) fn value_bytes(letter: &DeadLetter) -> u64 {
    let bytes = letter.value.as_ref().map_or(0, |value| value.len() as u64);
    letter.uncut.as_ref().map_or(bytes, |uncut| uncut.size_bytes)
}

/// A dead letter with its history.
#[derive(Debug)]
pub(crate) struct FoundDeadLetter {
    /// The record that opened it, the first since it was last resolved.
    pub(crate) letter: DeadLetter,
    pub(crate) known: KnownDeadLetter,
    /// Why a replay passes over it, as far as the record shows.
    pub(crate) not_replayable: Option<NotReplayable>,
    /// Every record about it, oldest first.
    pub(crate) history: Vec<HistoryEntry>,
}

/// One record about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HistoryEntry {
    pub(crate) at: String,
    /// `dead-lettered`, `replayed` or `discarded`.
    pub(crate) what: &'static str,
    /// Name of the relay that wrote the record.
    pub(crate) by: String,
    #[serde(flatten)]
    pub(crate) position: PartitionOffset,
}

impl FoundDeadLetter {
    /// Everything about the dead letter; its payload only where `with_payload` asks for it.
    pub(crate) fn detail(&self, with_payload: bool) -> Value {
        let letter = &self.letter;
        let cut_key = letter.key.as_ref().and_then(|key| Some((key, key.uncut.as_ref()?)));
        let headers = letter.headers.iter();
        let mut detail = summary(letter, &self.known);
        detail["original_partition"] = json!(letter.partition);
        detail["event_type"] = json!(letter.event_type);
        detail["content_type"] = json!(letter.content_type);
        detail["value_sha256"] = json!(letter.uncut.as_ref().map(|uncut| &uncut.sha256));
        detail["key_bytes"] = json!(cut_key.map(|(_, uncut)| uncut.size_bytes));
        detail["key_begins"] = json!(cut_key.map(|(key, _)| shown(&key.bytes)));
        detail["headers"] =
            headers.map(|(name, value)| json!({ "name": name, "value": shown(value) })).collect();
        detail["not_replayable"] = json!(self.not_replayable.map(NotReplayable::reason));
        detail["history"] = json!(self.history);
        if let Some((encoding, payload)) = self.payload().filter(|_| with_payload) {
            detail["payload"] = json!(payload);
            detail["payload_encoding"] = json!(encoding);
        }
        detail
    }

    /// The value as `text` or `base64`.
    pub(crate) fn payload(&self) -> Option<(&'static str, String)> {
        let value = self.letter.value.as_deref()?;
        Some(match std::str::from_utf8(value) {
            Ok(text) => ("text", text.to_owned()),
            Err(_) => ("base64", BASE64.encode(value)),
        })
    }
}

/// The dead letters of some events.
#[derive(Debug)]
pub(crate) struct FoundDeadLetters {
    pub(crate) letters: Vec<FoundDeadLetter>,
    /// Records that were read to find them.
    records: u64,
}

impl FoundDeadLetters {
    /// Why there is none for one of the events; `None` if there is one for each.
    pub(crate) fn missing(&self, event_ids: &[String]) -> Option<Fault> {
        let is_found = |id: &String| self.letters.iter().any(|it| it.letter.event_id == *id);
        let missing: Vec<String> =
            event_ids.iter().filter(|id| !is_found(id)).map(|id| format!("{id:?}")).collect();
        (!missing.is_empty()).then(|| {
            let (ids, records) = (missing.join(", "), self.records);
            Fault::new(
                Exit::Failed,
                "dead-letter.unknown",
                format!("there is no dead letter of event {ids} among {records} records"),
                "",
                "walrelay dlq list --state all",
            )
        })
    }
}

/// The dead letters of these events, with their histories.
pub(crate) fn find(
    topic: &DeadLetterTopic<'_>,
    event_ids: &[String],
) -> Result<FoundDeadLetters, Fault> {
    let mut histories: Vec<(DeadLetterId, Option<DeadLetter>, Vec<HistoryEntry>)> = Vec::new();
    let (mut index, mut records) = (DeadLetterIndex::default(), 0_u64);
    topic.each(ReadFrom::Beginning, |record| {
        records += 1;
        let Some((id, entry)) = history_entry(&record, event_ids) else { return Ok(true) };
        index.apply(&record);
        let at = histories.iter().position(|(known, ..)| *known == id).unwrap_or(histories.len());
        if at == FOUND_MAX * event_ids.len() {
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
        let not_replayable = topic.not_replayable(&letter);
        Some(FoundDeadLetter { known: index.known(&letter)?, letter, not_replayable, history })
    });
    Ok(FoundDeadLetters { letters: found.collect(), records })
}

/// The entry that a record adds to the history of the event, and the dead letter that it is about.
fn history_entry(record: &LogRecord, event_ids: &[String]) -> Option<(DeadLetterId, HistoryEntry)> {
    let entry = |at, what, by: &str, position| HistoryEntry {
        at: rfc3339(at),
        what,
        by: by.to_owned(),
        position,
    };
    match record {
        LogRecord::DeadLetter(it) if event_ids.contains(&it.event_id) => {
            Some((it.id(), entry(it.failed_unix_us, "dead-lettered", &it.relay, it.position)))
        }
        LogRecord::Resolution(it) if event_ids.contains(&it.event_id) => {
            Some((it.id(), entry(it.resolved_unix_us, it.kind.name(), &it.relay, it.position)))
        }
        _ => None,
    }
}

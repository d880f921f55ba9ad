//! A dead letter as JSON: the same for the command line and the admin API.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use super::find::{Found, Step};
use super::fold::Known;
use super::record::DeadLetter;
use crate::base::text::shown;
use crate::base::time::rfc3339;

/// A dead letter without its payload.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    /// Event id.
    pub event_id: &'a str,
    /// Key; what is no text in it is escaped. One that was cut is named by its hash.
    pub key: Option<String>,
    /// Topic or routing key it was on its way to.
    pub topic: &'a str,
    /// RabbitMQ exchange it was on its way to.
    pub exchange: &'a str,
    /// What went wrong.
    pub error_class: &'a str,
    /// The same for people.
    pub error_msg: &'a str,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up.
    pub failed_at: String,
    /// When it failed for the first time.
    pub first_failed_at: String,
    /// Commit LSN of its transaction.
    pub lsn: &'a str,
    /// Commit time of its transaction.
    pub commit_ts: String,
    /// open, replayed or discarded.
    pub state: &'static str,
    /// How often it was replayed.
    pub replays: u32,
    /// Do later events of its key follow it?
    pub parks_key: bool,
    /// Bytes of the value before it was cut.
    pub value_bytes: u64,
    /// Is the value incomplete?
    pub cut: bool,
    /// Is more missing of it?
    pub incomplete: bool,
    /// Who gave it up.
    pub relay: &'a str,
    /// Partition of the dead-letter topic.
    pub partition: i32,
    /// Offset in it.
    pub offset: i64,
}

impl<'a> View<'a> {
    /// What is shown of a letter.
    #[must_use]
    pub fn new(letter: &'a DeadLetter, known: &Known) -> View<'a> {
        let here = letter.value.as_ref().map_or(0, |value| value.len() as u64);
        View {
            event_id: &letter.event_id,
            key: letter.key_name(),
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
            value_bytes: letter.cut.as_ref().map_or(here, |cut| cut.size_bytes),
            cut: letter.cut.is_some(),
            incomplete: letter.incomplete,
            relay: &letter.relay,
            partition: letter.position.partition,
            offset: letter.position.offset,
        }
    }
}

/// Everything of a dead letter.
#[derive(Debug, Serialize)]
pub struct Detail<'a> {
    /// What a list tells, too.
    #[serde(flatten)]
    pub view: View<'a>,
    /// Partition that a column gave.
    pub original_partition: Option<i32>,
    /// Type of the event.
    pub event_type: Option<&'a str>,
    /// What the value is.
    pub content_type: Option<&'a str>,
    /// SHA-256 of a value before it was cut.
    pub value_sha256: Option<&'a str>,
    /// Bytes of a key before it was cut.
    pub key_bytes: Option<u64>,
    /// How a key began that was cut.
    pub key_begins: Option<String>,
    /// Headers of the event.
    pub headers: Vec<HeaderView<'a>>,
    /// Every record about it, oldest first.
    pub history: Vec<StepView<'a>>,
    /// The value, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// `text` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_encoding: Option<&'static str>,
}

/// A header.
#[derive(Debug, Serialize)]
pub struct HeaderView<'a> {
    /// Name.
    pub name: &'a str,
    /// Value; what is no text in it is escaped.
    pub value: String,
}

/// A record about a letter.
#[derive(Debug, Serialize)]
pub struct StepView<'a> {
    /// When.
    pub at: String,
    /// What happened.
    pub what: &'static str,
    /// By whom.
    pub by: &'a str,
    /// Partition of the dead-letter topic.
    pub partition: i32,
    /// Offset in it.
    pub offset: i64,
}

impl<'a> Detail<'a> {
    /// Everything of what was found, with the payload where that is asked for.
    #[must_use]
    pub fn new(found: &'a Found, with_payload: bool) -> Detail<'a> {
        let letter = &found.letter;
        let value = letter.value.as_deref().filter(|_| with_payload);
        let payload = value.map(|value| match std::str::from_utf8(value) {
            Ok(text) => (text.to_owned(), "text"),
            Err(_) => (BASE64.encode(value), "base64"),
        });
        let (payload, payload_encoding) = payload.unzip();
        let headers = letter.headers.iter();
        Detail {
            view: View::new(letter, &found.known),
            original_partition: letter.partition,
            event_type: letter.event_type.as_deref(),
            content_type: letter.content_type.as_deref(),
            value_sha256: letter.cut.as_ref().map(|cut| cut.sha256.as_str()),
            key_bytes: letter.key_cut.as_ref().map(|cut| cut.size_bytes),
            key_begins: letter.key_cut.as_ref().and(letter.key.as_deref()).map(shown),
            headers: headers
                .map(|(name, value)| HeaderView { name, value: shown(value) })
                .collect(),
            history: found.history.iter().map(StepView::new).collect(),
            payload,
            payload_encoding,
        }
    }
}

impl<'a> StepView<'a> {
    fn new(step: &'a Step) -> StepView<'a> {
        StepView {
            at: rfc3339(step.unix_us),
            what: step.what,
            by: &step.by,
            partition: step.position.partition,
            offset: step.position.offset,
        }
    }
}

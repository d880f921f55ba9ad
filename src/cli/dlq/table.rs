//! Dead letters for people: one line each, or everything about one of them.

use crate::base::text::{escaped, shown};
use crate::base::time::rfc3339;
use crate::cli::output::{Table, Width, cut};
use crate::dead_letter::fold::KnownDeadLetter;
use crate::dead_letter::record::{DeadLetter, NotReplayable, PartitionOffset};
use crate::dead_letter::view::{FoundDeadLetter, value_bytes};

const MESSAGE_WIDTH: usize = 80;
const LABEL_WIDTH: usize = 13;

pub(super) const TABLE: Table = Table(&[
    ("FAILED AT", Width::Cut(19)),
    ("STATE", Width::Cut(9)),
    ("EVENT ID", Width::Cut(36)),
    ("KEY", Width::Cut(20)),
    ("TOPIC", Width::Cut(28)),
    ("ERROR CLASS", Width::Cut(33)),
    ("TRIES", Width::Cut(5)),
    ("MESSAGE", Width::Cut(MESSAGE_WIDTH)),
]);

pub(super) fn line(letter: &DeadLetter, known: &KnownDeadLetter) -> String {
    TABLE.row([
        rfc3339(letter.failed_unix_us).get(..19).unwrap_or_default().replace('T', " ").as_str(),
        known.state.name(),
        &letter.event_id,
        &letter.key.as_ref().map_or_else(|| "-".to_owned(), |key| key.name()),
        &letter.topic,
        &letter.error_class,
        &letter.attempts.to_string(),
        &letter.error_msg,
    ])
}

/// Everything about one dead letter; its payload where `with_payload` asks for it.
pub(super) fn detail(found: &FoundDeadLetter, with_payload: bool) -> String {
    let FoundDeadLetter { letter, known, not_replayable, history } = found;
    let PartitionOffset { partition, offset } = letter.position;
    let facts = [
        ("event id", escaped(&letter.event_id)),
        ("state", format!("{}, replayed {} times", known.state.name(), known.replays)),
        ("key", key(letter)),
        ("topic", escaped(&letter.topic)),
        ("exchange", escaped(&letter.exchange)),
        ("error class", escaped(&letter.error_class)),
        ("error", escaped(&letter.error_msg)),
        ("attempts", letter.attempts.to_string()),
        ("first failed", rfc3339(letter.first_failed_unix_us)),
        (
            "dead-lettered",
            format!("{} by {}", rfc3339(letter.failed_unix_us), escaped(&letter.relay)),
        ),
        ("committed", format!("{} at {}", rfc3339(letter.commit_unix_us), escaped(&letter.lsn))),
        ("parks its key", if letter.parks_key { "yes" } else { "no" }.to_owned()),
        ("value", value(letter)),
        ("replay", not_replayable.map_or_else(String::new, refusal)),
        ("position", format!("partition {partition}, offset {offset}")),
    ];
    let headers = letter.headers.iter();
    let headers =
        headers.map(|(name, value)| ("header", format!("{} = {}", escaped(name), shown(value))));
    let facts = facts.into_iter().chain(headers).filter(|(_, fact)| !fact.is_empty());
    let facts = facts.map(|(label, fact)| format!("{label:<LABEL_WIDTH$}  {fact}"));
    let history = history.iter().map(|entry| {
        let PartitionOffset { partition, offset } = entry.position;
        format!("  {}  {} by {} ({partition}:{offset})", entry.at, entry.what, escaped(&entry.by))
    });
    let payload = found.payload().filter(|_| with_payload);
    let payload = payload.map(|(kind, text)| format!("payload ({kind})\n{}", escaped_text(&text)));
    let lines = facts.chain(["history".to_owned()]).chain(history).chain(payload);
    lines.collect::<Vec<_>>().join("\n")
}

fn refusal(why: NotReplayable) -> String {
    format!("not possible: {} (docs/dead-letters.md, \"Replay\")", why.reason())
}

fn key(letter: &DeadLetter) -> String {
    let Some(key) = &letter.key else { return "none".to_owned() };
    let Some(uncut) = &key.uncut else { return key.name() };
    let begins = cut(&shown(&key.bytes), MESSAGE_WIDTH);
    format!("{}, cut; whole it has {} bytes and begins with {begins}", key.name(), uncut.size_bytes)
}

fn value(letter: &DeadLetter) -> String {
    let bytes = value_bytes(letter);
    match &letter.uncut {
        None => format!("{bytes} bytes"),
        // A consumer writes no hash.
        Some(uncut) if uncut.sha256.is_empty() => format!("{bytes} bytes, cut"),
        Some(uncut) => {
            format!("{bytes} bytes, cut; whole it has SHA-256 {}", escaped(&uncut.sha256))
        }
    }
}

/// A payload keeps its line ends and tabs; everything else that moves a cursor is escaped.
fn escaped_text(payload: &str) -> String {
    let lines = payload.split('\n').map(|line| {
        let parts: Vec<String> = line.split('\t').map(escaped).collect();
        parts.join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

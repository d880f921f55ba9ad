//! Dead letters for people: one line each, or one of them whole.

use std::fmt::Write;

use crate::base::text::escaped;
use crate::cli::table::{Table, Width, cut};
use crate::dead_letter::view::{DeadLetterDetail, DeadLetterSummary};

const MESSAGE_WIDTH: usize = 80;

pub(super) const TABLE: Table = Table(&[
    ("FAILED AT", Width::Cut(19)),
    ("STATE", Width::Cut(9)),
    ("EVENT ID", Width::Cut(36)),
    ("KEY", Width::Cut(20)),
    ("TOPIC", Width::Cut(28)),
    ("ERROR CLASS", Width::Cut(30)),
    ("TRIES", Width::Cut(5)),
    ("MESSAGE", Width::Cut(MESSAGE_WIDTH)),
]);

/// One letter.
pub(super) fn line(view: &DeadLetterSummary<'_>) -> String {
    TABLE.row([
        view.failed_at.get(..19).unwrap_or_default().replace('T', " ").as_str(),
        view.state,
        view.event_id,
        view.key.as_deref().unwrap_or("-"),
        view.topic,
        view.error_class,
        &view.attempts.to_string(),
        view.error_msg,
    ])
}

/// Everything of one letter.
pub(super) fn detail(detail: &DeadLetterDetail<'_>) -> String {
    let view = &detail.summary;
    let mut facts = vec![
        ("event id", escaped(view.event_id)),
        ("state", format!("{}, replayed {} times", view.state, view.replays)),
        ("key", key(detail)),
        ("topic", escaped(view.topic)),
        ("exchange", escaped(view.exchange)),
        ("error class", escaped(view.error_class)),
        ("error", escaped(view.error_msg)),
        ("attempts", view.attempts.to_string()),
        ("first failed", view.first_failed_at.clone()),
        ("given up", format!("{} by {}", view.failed_at, escaped(view.relay))),
        ("committed", format!("{} at {}", view.commit_ts, escaped(view.lsn))),
        ("parks its key", if view.parks_key { "yes" } else { "no" }.to_owned()),
        ("value", value(detail)),
        (
            "stands at",
            format!("partition {}, offset {}", view.position.partition, view.position.offset),
        ),
    ];
    let name = |name: &&str| name.chars().count();
    let headers = detail.headers.iter();
    facts.extend(
        headers.map(|header| ("header", format!("{} = {}", escaped(header.name), header.value))),
    );
    let width = facts.iter().map(|(label, _)| name(label)).max().unwrap_or_default();
    let mut text = String::new();
    for (label, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        writeln!(text, "{label:<width$}  {fact}").ok();
    }
    text.push_str("history");
    for step in detail.history {
        let (at, what, by) = (&step.at, step.what, escaped(&step.by));
        write!(
            text,
            "\n  {at}  {what} by {by} ({}:{})",
            step.position.partition, step.position.offset
        )
        .ok();
    }
    if let Some(payload) = &detail.payload {
        let kind = detail.payload_encoding.unwrap_or_default();
        write!(text, "\npayload ({kind})\n{}", lines(payload)).ok();
    }
    text
}

fn key(detail: &DeadLetterDetail<'_>) -> String {
    let name = detail.summary.key.as_deref().unwrap_or("none");
    match (detail.key_bytes, &detail.key_begins) {
        (Some(bytes), Some(begins)) => {
            format!(
                "{name}, cut; whole it has {bytes} bytes and begins with {}",
                cut(begins, MESSAGE_WIDTH)
            )
        }
        _ => name.to_owned(),
    }
}

fn value(detail: &DeadLetterDetail<'_>) -> String {
    let bytes = detail.summary.value_bytes;
    match detail.value_sha256 {
        Some(sha256) => format!("{bytes} bytes, cut; whole it has SHA-256 {}", escaped(sha256)),
        None => format!("{bytes} bytes"),
    }
}

/// A payload may have lines and tabs of its own, and nothing else that moves a cursor.
fn lines(payload: &str) -> String {
    let lines = payload.split('\n').map(|line| {
        let parts: Vec<String> = line.split('\t').map(escaped).collect();
        parts.join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

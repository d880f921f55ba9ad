//! Dead letters for people: one line each, or one of them whole.

use std::fmt::Write;

use crate::base::text::escaped;
use crate::dead_letter::view::{DeadLetterDetail, DeadLetterSummary};

const WIDTHS: [usize; 7] = [19, 9, 36, 20, 28, 30, 5];
const MESSAGE_WIDTH: usize = 80;

/// The names of the columns.
pub(super) fn head() -> String {
    let names = ["FAILED AT", "STATE", "EVENT ID", "KEY", "TOPIC", "ERROR CLASS", "TRIES"];
    row(&names.map(str::to_owned), "MESSAGE")
}

/// One letter; what is too long is cut.
pub(super) fn line(view: &DeadLetterSummary<'_>) -> String {
    let failed_at = view.failed_at.get(..19).unwrap_or_default().replace('T', " ");
    let cells = [
        failed_at,
        view.state.to_owned(),
        escaped(view.event_id),
        view.key.clone().unwrap_or_else(|| "-".to_owned()),
        escaped(view.topic),
        escaped(view.error_class),
        view.attempts.to_string(),
    ];
    row(&cells, &escaped(view.error_msg))
}

fn row(cells: &[String; 7], message: &str) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        let cell = cut(cell, width);
        // Writing to a string does not fail.
        write!(line, "{cell:<width$}  ").ok();
    }
    line.push_str(&cut(message, MESSAGE_WIDTH));
    line.truncate(line.trim_end().len());
    line
}

fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
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

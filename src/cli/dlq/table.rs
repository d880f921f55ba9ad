//! Dead letters for people: one line each, or one of them whole.

use std::fmt::Write;

use crate::dead_letter::text::escaped;
use crate::dead_letter::view::{Detail, View};

const WIDTHS: [usize; 7] = [19, 9, 36, 20, 28, 30, 5];
const MESSAGE_WIDTH: usize = 80;

/// The names of the columns.
pub(super) fn head() -> String {
    let names = ["FAILED AT", "STATE", "EVENT ID", "KEY", "TOPIC", "ERROR CLASS", "TRIES"];
    row(&names.map(str::to_owned), "MESSAGE")
}

/// One letter; what is too long is cut.
pub(super) fn line(view: &View<'_>) -> String {
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
pub(super) fn detail(detail: &Detail<'_>) -> String {
    let view = &detail.view;
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
        ("stands at", format!("partition {}, offset {}", view.partition, view.offset)),
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
    for step in &detail.history {
        let (at, what, by) = (&step.at, step.what, escaped(step.by));
        write!(text, "\n  {at}  {what} by {by} ({}:{})", step.partition, step.offset).ok();
    }
    if let Some(payload) = &detail.payload {
        let kind = detail.payload_encoding.unwrap_or_default();
        write!(text, "\npayload ({kind})\n{}", lines(payload)).ok();
    }
    text
}

fn key(detail: &Detail<'_>) -> String {
    let name = detail.view.key.as_deref().unwrap_or("none");
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

fn value(detail: &Detail<'_>) -> String {
    let bytes = detail.view.value_bytes;
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
mod tests {
    use super::*;
    use crate::dead_letter::find::{Found, Step};
    use crate::dead_letter::fold::{Known, State};
    use crate::dead_letter::record::{Cut, Letter};
    use crate::sink::log::Place;

    fn letter() -> Letter {
        Letter {
            event_id: "e\x1b[2J1".to_owned(),
            key: Some(vec![b'k', 0xff]),
            topic: "a-topic-with-a-name-that-is-far-too-long".to_owned(),
            error_class: "kafka.unknown-topic".to_owned(),
            error_msg: "no\nsuch topic".to_owned(),
            attempts: 5,
            value: Some(b"{\"a\":\t1}\n\x07".to_vec()),
            headers: vec![("id".to_owned(), b"e1".to_vec())],
            ..Letter::default()
        }
    }

    const KNOWN: Known = Known { state: State::Open, replays: 0, marked: true };

    #[test]
    fn a_line_has_columns_and_no_control_characters() {
        let letter = letter();
        let line = line(&View::new(&letter, &KNOWN));
        let at = |word: &str| head().find(word).unwrap();
        assert!(line.starts_with("1970-01-01 00:00:00  open"), "{line}");
        assert_eq!(&line[at("EVENT ID")..at("EVENT ID") + 11], "e\\u{1b}[2J1");
        assert_eq!(&line[at("KEY")..at("KEY") + 5], "k\\xff");
        assert!(line.contains("a-topic-with-a-name-that-is…  kafka.unknown-topic"), "{line}");
        assert!(line.ends_with("5      no\\nsuch topic"), "{line}");
    }

    #[test]
    fn one_letter_is_told_whole_and_its_payload_on_request() {
        let place = Place { partition: 1, offset: 2 };
        let step = Step { unix_us: 0, what: "dead-lettered", by: "orders".to_owned(), place };
        let cut = Some(Cut { size_bytes: 99, sha256: "ab".to_owned() });
        let letter = Letter { cut, ..letter() };
        let found = Found { letter, known: KNOWN, history: vec![step] };
        let text = detail(&Detail::new(&found, false));
        for part in ["header         id = e1", "99 bytes, cut", "dead-lettered by orders (1:2)"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("payload"), "{text}");
        let text = detail(&Detail::new(&found, true));
        assert!(text.ends_with("payload (text)\n{\"a\":\t1}\n\\u{7}"), "{text}");
        let letter = Letter { value: Some(vec![0xff]), ..found.letter };
        let text = detail(&Detail::new(&Found { letter, ..found }, true));
        assert!(text.ends_with("payload (base64)\n/w=="), "{text}");
    }
}

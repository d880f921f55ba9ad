use std::time::Duration;

use tracing_subscriber::filter::Targets;

use super::testing::{TEXT, written_with};
use super::*;
use crate::error::Exit;
use crate::text::escaped;

/// Returns the lines that are written at this level.
fn written(level: Level, style: Style, work: impl FnOnce()) -> String {
    written_with(Targets::new().with_default(level), style, |_| work())
}

/// An event's id that forges a line, clears the screen in two ways and turns the direction.
const FORGED: &str = "e1\n2026-01-01T00:00:00Z ERROR forged\r\x1b[2J\u{9b}2J\u{202e}\u{2028}";

fn log_forged() {
    tracing::warn!(id = FORGED, shown = %FORGED, cause = ?FORGED, "event {FORGED}");
}

#[test]
fn what_comes_from_outside_forges_no_line_and_moves_no_cursor() {
    for style in [TEXT, Style::Json] {
        let text = written(Level::INFO, style, log_forged);
        let line = text.strip_suffix('\n').unwrap();
        assert_eq!(line, escaped(line), "{style:?}");
        assert_eq!(text.matches("forged").count(), 4, "{text}");
    }
    // THEN in JSON it is what it was
    let text = written(Level::INFO, Style::Json, log_forged);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["id"], &line["shown"]), (&FORGED.into(), &FORGED.into()));
    // THEN only the colours are ours
    let text = written(Level::INFO, Style::Text { coloured: true }, log_forged);
    let ours = ["\x1b[0m", "\x1b[2m", "\x1b[3m", "\x1b[33m"];
    let rest = ours.iter().fold(text, |text, code| text.replace(code, ""));
    assert_eq!(rest.trim_end(), escaped(rest.trim_end()));
}

#[test]
fn a_fault_is_a_block_for_people_or_a_line_of_json() {
    let fault = Fault::new(Exit::Slot, "a.b", FORGED, "here", "one\ntwo");
    let text = Style::Text { coloured: false }.format(&fault);
    assert_eq!(text, format!("{fault}\n"));
    let coloured = Style::Text { coloured: true }.format(&fault);
    assert!(coloured.starts_with("\x1b[1;31merror[a.b]\x1b[0m: e1\\n"), "{coloured}");
    let json = Style::Json.format(&fault);
    let line = json.strip_suffix('\n').unwrap();
    assert_eq!(line, escaped(line));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    for (name, value) in [
        ("level", "ERROR"),
        ("message", FORGED),
        ("code", "a.b"),
        ("where", "here"),
        ("help", "one\ntwo"),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!(line["exit"], 3);
}

#[test]
fn repeated_lines_are_limited_and_counted() {
    for style in [TEXT, Style::Json] {
        let text = written(Level::INFO, style, || {
            for n in 0..400 {
                tracing::warn!(code = "event.retried", n, "the broker refused an event");
                // Another kind from the same place.
                for code in ["a.b", "c.d"] {
                    tracing::error!(code, "what is rare");
                }
                tracing::info!(target: "audit", n, "somebody did something");
            }
        });
        let lines = |what: &str| text.matches(what).count();
        assert_eq!(lines("refused an event"), 10, "{text}");
        assert_eq!((lines("a.b"), lines("c.d")), (10, 10));
        // THEN nobody's deeds are left out
        assert_eq!(lines("somebody did"), 400);
    }
    // THEN what was asked for is written whole
    let text = written(Level::DEBUG, TEXT, || (0..400).for_each(|n| tracing::debug!(n, "detail")));
    assert_eq!(text.lines().count(), 400);
}

fn log_burst() {
    (0..40).for_each(|n| tracing::error!(code = "a.b", n, "a burst"));
}

#[test]
fn the_count_of_a_burst_is_written_when_its_period_is_over_though_nothing_follows() {
    for style in [TEXT, Style::Json] {
        let text = written_with(Targets::new().with_default(Level::ERROR), style, |log| {
            let began = Instant::now();
            log_burst();
            for seconds in 0..60 {
                log.write_counts(began + Duration::from_secs(seconds), false);
            }
        });
        // THEN it is written once
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 11, "{text}");
        assert!(lines[10].contains("… 30 more in 1 s: a burst"), "{text}");
    }
}

#[test]
fn what_was_not_written_is_counted_at_the_end_of_the_process() {
    let text = written_with(Targets::new().with_default(Level::WARN), TEXT, |log| {
        log_burst();
        log.write_counts(Instant::now(), false);
        log.write_counts(Instant::now(), true);
        log.write_counts(Instant::now(), true);
    });
    assert_eq!(text.lines().count(), 11, "{text}");
    assert!(text.ends_with("ERROR … 30 more in 1 s: a burst code=\"a.b\"\n"), "{text}");
}

#[test]
fn lines_that_were_not_written_or_not_read_are_told_in_the_form_of_the_log() {
    for style in [TEXT, Style::Json] {
        let text = written_with(Targets::new().with_default(Level::WARN), style, |log| {
            for _ in 0..11 {
                tracing::warn!(code = "event.retried", n = 7, "{FORGED}");
            }
            log.write_counts(Instant::now(), true);
        });
        let last = text.lines().last().unwrap();
        assert_eq!(last, escaped(last));
        let lost = style.lost(3);
        if style == TEXT {
            assert!(last.contains("Z  WARN … 1 more in 1 s: e1\\n2026"), "{last}");
            assert!(last.ends_with(" code=\"event.retried\""), "{last}");
            assert!(
                lost.ends_with("lost: standard error was not read code=\"log.lost\"\n"),
                "{lost}"
            );
            continue;
        }
        let line: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(line["message"], format!("… 1 more in 1 s: {FORGED}"));
        assert_eq!((&line["level"], &line["code"]), (&"WARN".into(), &"event.retried".into()));
        assert_eq!(line["target"], module_path!());
        let lost: serde_json::Value = serde_json::from_str(&lost).unwrap();
        assert_eq!((&lost["code"], &lost["target"]), (&"log.lost".into(), &"walrelay".into()));
    }
}

#[test]
fn a_message_that_is_quoted_in_part_ends_with_a_mark() {
    let quoted = |message: &str| {
        let text = written_with(Targets::new().with_default(Level::WARN), TEXT, |log| {
            for _ in 0..11 {
                tracing::warn!("{message}");
            }
            log.write_counts(Instant::now(), true);
        });
        text.lines().last().unwrap().split_once("1 more in 1 s: ").unwrap().1.to_owned()
    };
    let whole = "x".repeat(120);
    assert_eq!(quoted(&whole), whole);
    assert_eq!(quoted(&format!("{whole}y")), format!("{whole}…"));
}

#[test]
fn a_line_has_its_fields_in_their_order_and_numbers_as_they_are() {
    let log = || {
        tracing::info!(code = "a.b", shown = %"x y", cause = ?Some(1), n = 7, at = -1.5, is = true, "text");
    };
    let text = written(Level::INFO, TEXT, log);
    let (time, rest) = text.split_at("2026-01-02T03:04:05.678000Z".len());
    assert!(time.ends_with('Z'), "{text}");
    assert_eq!(rest, "  INFO text code=\"a.b\" shown=x y cause=Some(1) n=7 at=-1.5 is=true\n");
    let json = written(Level::INFO, Style::Json, log);
    let (time, rest) = json.split_once(',').unwrap();
    assert!(time.starts_with("{\"timestamp\":\"2"), "{json}");
    let fields = r#""code":"a.b","shown":"x y","cause":"Some(1)","n":7,"at":-1.5,"is":true"#;
    let wanted =
        format!(r#""level":"INFO","message":"text",{fields},"target":"{}"}}"#, module_path!());
    assert_eq!(rest, wanted + "\n");
    let coloured = written(Level::INFO, Style::Text { coloured: true }, log);
    let wanted = " \x1b[32m INFO\x1b[0m text \x1b[3mcode\x1b[0m\x1b[2m=\x1b[0m\"a.b\"";
    assert!(coloured.contains(wanted), "{coloured}");
}

#[test]
fn findings_are_all_written() {
    let text = written(Level::INFO, TEXT, || {
        for n in 0..40 {
            tracing::warn!(target: FINDINGS, code = "table", "column {n} is missing");
        }
    });
    assert_eq!(text.lines().count(), 40, "{text}");
}

#[test]
fn a_panic_is_written_in_the_style_of_faults() {
    let line: serde_json::Value = serde_json::from_str(&Style::Json.panicked(FORGED)).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&"ERROR".into(), &FORGED.into()));
    let text = TEXT.panicked(FORGED);
    assert_eq!(text.lines().count(), 2, "line ends stay, for the backtrace");
    assert!(text.lines().all(|line| line == escaped(line)), "{text}");
}

#[test]
fn a_line_of_any_length_is_cut() {
    let long = "x".repeat(1 << 20);
    for style in [TEXT, Style::Json] {
        let of_field = written(Level::INFO, style, || {
            tracing::warn!(code = "a.b", error = long, "what is wrong");
        });
        let of_message = written(Level::INFO, style, || {
            tracing::warn!(code = "a.b", "what is wrong: {long}");
        });
        // Only a message that was cut has the mark.
        assert!(of_field.contains("what is wrong (a line of"), "{of_field}");
        assert!(of_message.contains("xx… (a line of"), "{of_message}");
        for text in [of_field, of_message] {
            assert!(text.len() < 4096 && text.lines().count() == 1, "{} bytes", text.len());
            assert!(text.contains("what is wrong") && text.contains("a.b"), "{text}");
            assert!(text.contains("a line of 10"), "{text}");
        }
    }
}

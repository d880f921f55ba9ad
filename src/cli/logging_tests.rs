use std::io::Write;
use std::sync::{Arc, Mutex};

use super::*;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const TEXT: Style = Style::Text { coloured: false };

/// What is written.
fn written(level: &str, style: Style, log: impl FnOnce()) -> String {
    let written = Written::default();
    let own = written.clone();
    let lines = lines(filter(level).unwrap(), style, move || own.clone());
    tracing::dispatcher::with_default(&lines, log);
    String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
}

/// What is written of an audit line and another one.
fn audited(level: &str, style: Style) -> Vec<String> {
    let text = written(level, style, || {
        tracing::info!(target: "audit", who = "me", "replay begins");
        tracing::info!("something else");
    });
    text.lines().map(str::to_owned).collect()
}

#[test]
fn audit_lines_are_written_however_quiet_the_rest_is_and_can_be_recognised() {
    for level in ["warn", "error", "off", "audit=off", "warn,audit=error"] {
        let lines = audited(level, TEXT);
        assert_eq!(lines.len(), 1, "{level}: {lines:?}");
        assert!(lines[0].contains("INFO audit: replay begins who=\"me\""), "{lines:?}");
        let lines = audited(level, Style::Json);
        assert_eq!(lines.len(), 1, "{level}: {lines:?}");
        assert!(lines[0].contains(r#""target":"audit""#), "{lines:?}");
    }
    // THEN on a terminal other lines do not say where they come from
    let lines = audited("info", TEXT);
    assert!(lines[1].ends_with("INFO something else"), "{lines:?}");
}

/// An event's id that forges a line, clears the screen in two ways and turns the direction.
const FORGED: &str = "e1\n2026-01-01T00:00:00Z ERROR forged\r\x1b[2J\u{9b}2J\u{202e}\u{2028}";

fn log_forged() {
    tracing::warn!(id = FORGED, shown = %FORGED, cause = ?FORGED, "event {FORGED}");
}

#[test]
fn what_comes_from_outside_forges_no_line_and_moves_no_cursor() {
    for style in [TEXT, Style::Json] {
        let text = written("info", style, log_forged);
        let line = text.strip_suffix('\n').unwrap();
        assert_eq!(line, escaped(line), "{style:?}");
        assert_eq!(text.matches("forged").count(), 4, "{text}");
    }
    // THEN in JSON it is what it was
    let text = written("info", Style::Json, log_forged);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["id"], &line["shown"]), (&FORGED.into(), &FORGED.into()));
    // THEN only the colours are ours
    let text = written("info", Style::Text { coloured: true }, log_forged);
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
        ("mend", "one\ntwo"),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!(line["exit"], 3);
}

#[test]
fn levels_and_filters_are_understood() {
    assert!(filter("debug").is_ok() && filter("warn,walrelay=trace").is_ok());
    let fault = filter("walrelay=loud").unwrap_err();
    assert_eq!((fault.exit, fault.code), (Exit::Usage, "config.bad-value"));
}

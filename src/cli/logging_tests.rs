use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    written_at(level, style, Instant::now, log)
}

/// What is written by this clock.
fn written_at(
    level: &str,
    style: Style,
    clock: impl Fn() -> Instant + Send + Sync + 'static,
    log: impl FnOnce(),
) -> String {
    let written = Written::default();
    let own = written.clone();
    let (lines, _) = lines(filter(level, "test").unwrap(), style, move || own.clone(), clock);
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
        ("help", "one\ntwo"),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!(line["exit"], 3);
}

#[test]
fn levels_and_filters_are_understood() {
    assert!(filter("debug", "test").is_ok() && filter("warn,walrelay=trace", "test").is_ok());
    for bad in ["walrelay=loud", "walrelay[span]=debug", "info, walrelay=debug", "info,", ""] {
        let fault = filter(bad, "test").unwrap_err();
        assert_eq!((fault.exit, fault.code), (Exit::Usage, "config.bad-value"), "{bad}");
    }
}

#[test]
fn repeated_lines_are_limited_and_counted() {
    for style in [TEXT, Style::Json] {
        let text = written("info", style, || {
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
    let text = written("debug", TEXT, || (0..400).for_each(|n| tracing::debug!(n, "detail")));
    assert_eq!(text.lines().count(), 400);
}

fn log_burst() {
    (0..40).for_each(|n| tracing::error!(code = "a.b", n, "a burst"));
}

#[test]
fn the_count_of_a_burst_is_written_when_its_period_is_over_though_nothing_follows() {
    for level in ["error", "walrelay=error", "info"] {
        let (began, passed_s) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let passed = Arc::clone(&passed_s);
        let clock = move || began + Duration::from_secs(passed.load(Relaxed));
        let text = written_at(level, TEXT, clock, || {
            log_burst();
            for seconds in 0..60 {
                passed_s.store(seconds, Relaxed);
                log::write_due_counts();
            }
        });
        // THEN it is written once, and what asks for it is not
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 11, "{level}: {text}");
        assert!(lines[10].contains("ERROR … 30 more in 1 s: a burst code=\"a.b\""), "{text}");
    }
}

#[test]
fn what_was_not_written_is_counted_at_the_end_of_the_process() {
    for style in [TEXT, Style::Json] {
        let text = written("warn", style, || {
            log_burst();
            log::write_due_counts();
            log::write_last_counts();
            log::write_last_counts();
        });
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.lines().last().unwrap().contains("… 30 more in 1 s: a burst"), "{text}");
    }
}

#[test]
fn findings_are_all_written() {
    let text = written("info", TEXT, || {
        for n in 0..40 {
            tracing::warn!(target: log::FINDINGS, code = "table", "column {n} is missing");
        }
    });
    assert_eq!(text.lines().count(), 40, "{text}");
}

#[test]
fn what_was_not_written_is_told_in_the_form_of_the_log() {
    let shown = Sample {
        level: Level::WARN,
        target: "walrelay::relay",
        code: Some("event.retried".into()),
        message: FORGED.into(),
    };
    let suppressed = Suppressed { shown, lines: 412, within: std::time::Duration::from_secs(30) };
    let text = TEXT.more(&suppressed);
    assert!(text.contains("Z  WARN … 412 more in 30 s: e1\\n2026"), "{text}");
    assert!(text.ends_with(" code=\"event.retried\"\n"), "{text}");
    let json = Style::Json.more(&suppressed);
    for line in [&text, &json] {
        let line = line.strip_suffix('\n').unwrap();
        assert_eq!(line, escaped(line));
    }
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(line["message"], format!("… 412 more in 30 s: {FORGED}"));
    assert_eq!((&line["level"], &line["code"]), (&"WARN".into(), &"event.retried".into()));
}

#[test]
fn the_amqp_client_is_not_logged_whatever_is_asked_for() {
    for level in ["trace", "lapin=trace", "trace,lapin::channels=trace"] {
        let text = written(level, TEXT, || {
            tracing::error!(target: "lapin", "a payload");
            tracing::error!(target: "lapin::channels", "a payload");
        });
        assert_eq!(text, "", "{level}");
    }
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
        for text in [
            written("info", style, || tracing::warn!(code = "a.b", error = long, "what is wrong")),
            written("info", style, || tracing::warn!(code = "a.b", "what is wrong: {long}")),
        ] {
            assert!(text.len() < 4096 && text.lines().count() == 1, "{} bytes", text.len());
            assert!(text.contains("what is wrong") && text.contains("a.b"), "{text}");
            assert!(text.contains("a line of 10"), "{text}");
        }
    }
}

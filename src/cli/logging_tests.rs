use super::*;
use crate::base::log::testing::{TEXT, written};

/// Returns the lines that are written at this level.
fn written_at(level: &str, style: Style, work: impl FnOnce()) -> String {
    written(filter(level, "test").unwrap(), style, work)
}

/// Returns the lines that are written of an audit line and another one.
fn audited(level: &str, style: Style) -> Vec<String> {
    let text = written_at(level, style, || {
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

#[test]
fn levels_and_filters_are_understood() {
    for good in ["debug", "OFF", "warn,walrelay=trace", "walrelay::cli=debug,info", "info,walrelay"]
    {
        assert!(filter(good, "test").is_ok(), "{good}");
    }
    // THEN a word that is no level is not taken for a target that no line has
    let words = ["warning", "verbose", "info,warning", "verbose=", "walrelay=loud"];
    let others = ["walrelay[span]=debug", "info, walrelay=debug", "a=b=info", "info,", ""];
    for bad in words.into_iter().chain(others) {
        let fault = filter(bad, "test").unwrap_err();
        assert_eq!((fault.exit, fault.code), (Exit::Usage, "config.bad-value"), "{bad}");
    }
}

#[test]
fn the_amqp_client_is_not_logged_whatever_is_asked_for() {
    for level in ["trace", "lapin=trace", "trace,lapin::channels=trace"] {
        let text = written_at(level, TEXT, || {
            tracing::error!(target: "lapin", "a payload");
            tracing::error!(target: "lapin::channels", "a payload");
        });
        assert_eq!(text, "", "{level}");
    }
}

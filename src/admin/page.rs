//! The page for people: one self-contained document, no script, everything escaped.

use super::status::{Polling, Slot, Status};
use crate::base::figures::{binary_size, duration, grouped};
use crate::base::html::escape;
use crate::health::State;

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="2">
<title>walrelay</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #5d6670; --paper: #fbfbfa;
  --line: #dfe2e5; --good: #17763b; --warn: #8f5a00; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --dim: #9aa3ad; --paper: #15181c;
  --line: #2d333a; --good: #5dc983; --warn: #e0ab4f; --bad: #ff8a80; } }
body { margin: 0 auto; max-width: 46rem; padding: 2rem 1.25rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header { display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap; }
h1 { font-size: 1.25rem; margin: 0; }
h2 { font-size: .8rem; color: var(--dim); margin: 1.75rem 0 .25rem; font-weight: 600; }
.dim { color: var(--dim); font-weight: 400; }
.state { font-weight: 650; }
.state::before { content: "●"; margin-right: .35em; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
ul { margin: .75rem 0 0; padding: .6rem .9rem; list-style: none; border-left: 3px solid; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem 0; border-bottom: 1px solid var(--line); text-align: left;
  font-weight: 400; overflow-wrap: anywhere; }
td { text-align: right; font-variant-numeric: tabular-nums; }
footer { margin-top: 1.75rem; font-size: .875rem; }
a { color: inherit; margin-right: 1rem; }
</style>
</head>
<body>
"#;

const FOOT: &str = r#"<footer class="dim"><a href="/metrics">metrics</a><a href="/status">status</a><a href="/readyz">readyz</a><a href="/livez">livez</a></footer>
</body>
</html>
"#;

/// The whole document.
pub(super) fn render(status: &Status) -> String {
    let mut html = String::with_capacity(HEAD.len() + FOOT.len() + 4096);
    html.push_str(HEAD);
    heading(&mut html, status);
    table(
        &mut html,
        "Events",
        &[
            ("published", number(status.events.published)),
            ("dead-lettered", number(status.events.dead_lettered)),
            ("retries", number(status.events.retries)),
            (
                "in flight",
                format!(
                    "{} · {}",
                    number(status.in_flight.events),
                    binary_size(status.in_flight.bytes)
                ),
            ),
        ],
    );
    let letters = &status.dead_letters;
    let unknown = || "not known".to_owned();
    let age = letters.oldest_age_seconds.map(|seconds| duration(seconds as u64));
    let parked = u64::try_from(letters.parked_keys).unwrap_or(0);
    table(
        &mut html,
        "Dead letters",
        &[
            ("open", letters.open.map_or_else(unknown, number)),
            ("age of the oldest", age.unwrap_or_else(unknown)),
            ("parked keys", number(parked)),
            ("breaker", if letters.breaker_open { "open" } else { "closed" }.to_owned()),
            ("failed writes", number(letters.publish_failed)),
        ],
    );
    match (&status.slot, &status.polling) {
        (Some(slot), _) => log_and_slot(&mut html, status, slot),
        (None, Some(polling)) => polled_table(&mut html, polling),
        (None, None) => {}
    }
    html.push_str(FOOT);
    html
}

fn polled_table(html: &mut String, polling: &Polling) {
    let unknown = || "not known".to_owned();
    let age = polling.backlog_age_seconds.map(|seconds| duration(seconds as u64));
    table(
        html,
        "Table",
        &[
            ("rows not published", polling.backlog.map_or_else(unknown, number)),
            ("age of the oldest", age.unwrap_or_else(unknown)),
            ("claims that ran out", number(polling.expired_claims)),
            ("rows cleaned up", number(polling.cleaned_rows)),
        ],
    );
}

fn log_and_slot(html: &mut String, status: &Status, slot: &Slot) {
    table(
        html,
        "Log positions",
        &[
            ("received", status.lsn.received.clone()),
            ("sent to the broker", status.lsn.sent.clone()),
            ("confirmed", status.lsn.confirmed.clone()),
        ],
    );
    let bytes = |bytes: i64| binary_size(u64::try_from(bytes).unwrap_or(0));
    let safe = slot.safe_wal_bytes.map_or_else(|| "no limit known".to_owned(), bytes);
    table(
        html,
        "Slot",
        &[
            ("name", slot.name.clone()),
            ("streaming", if slot.active { "yes" } else { "no" }.to_owned()),
            ("WAL status", slot.wal_status.unwrap_or("not read yet").to_owned()),
            ("lag", format!("{} · {:.1} s", bytes(slot.lag_bytes.confirmed), slot.lag_seconds)),
            ("WAL retained", bytes(slot.retained_wal_bytes)),
            ("WAL until danger", safe),
            ("reconnects", number(status.events.source_reconnects)),
        ],
    );
}

fn heading(html: &mut String, status: &Status) {
    let tone = tone(status);
    let state = status.state.text().replace('_', " ");
    let (version, uptime) = (escape(status.version), duration(status.uptime_seconds));
    html.push_str(&format!(
        "<header><h1>walrelay <span class=\"dim\">{version}</span></h1>\
         <span class=\"state {tone}\">{state}</span>\
         <span class=\"dim\">up {uptime}</span></header>\n"
    ));
    if status.reasons.is_empty() && status.note.is_empty() {
        return;
    }
    html.push_str(&format!("<ul class=\"{tone}\">"));
    for why in &status.reasons {
        html.push_str(&format!("<li>{}</li>", escape(&why.text)));
    }
    if !status.note.is_empty() {
        html.push_str(&format!("<li>{}</li>", escape(&status.note)));
    }
    html.push_str("</ul>\n");
}

fn tone(status: &Status) -> &'static str {
    match status.state {
        State::Streaming | State::Polling if status.ready => "good",
        State::Starting | State::Standby | State::Connecting | State::Draining => "warn",
        State::Streaming | State::Polling | State::SinkDown | State::Stalled | State::Stopped => {
            "bad"
        }
    }
}

fn table(html: &mut String, title: &str, rows: &[(&str, String)]) {
    html.push_str(&format!("<h2>{}</h2>\n<table>\n", escape(title)));
    for (name, value) in rows {
        let (name, value) = (escape(name), escape(value));
        html.push_str(&format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n"));
    }
    html.push_str("</table>\n");
}

/// `1234567` as `1 234 567`, with narrow no-break spaces.
fn number(value: u64) -> String {
    grouped(value, '\u{202f}')
}

//! The page for people: one self-contained document, no script; `maud` escapes all it shows.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::status::{PollingStatus, SlotStatus, Status};
use crate::base::figures::{binary_size, duration, grouped};
use crate::health::HealthState;

const STYLE: &str = r#"
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
"#;

/// The whole document.
pub(super) fn render(status: &Status) -> String {
    let Status { events, in_flight, .. } = status;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content="2";
                title { "walrelay" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (heading(status))
                (table("Events", &[
                    ("published", number(events.published)),
                    ("dead-lettered", number(events.dead_lettered)),
                    ("retries", number(events.retries)),
                    (
                        "in flight",
                        format!("{} · {}", number(in_flight.events), binary_size(in_flight.bytes)),
                    ),
                ]))
                (dead_letters(status))
                @if let Some(slot) = &status.slot { (positions_and_slot(status, slot)) }
                @if let Some(polling) = &status.polling { (polled_table(polling)) }
                footer.dim {
                    @for path in ["metrics", "status", "readyz", "livez"] {
                        a href={ "/" (path) } { (path) }
                    }
                }
            }
        }
    };
    page.into_string()
}

fn heading(status: &Status) -> Markup {
    let tone = match status.health {
        HealthState::Streaming | HealthState::Polling if status.ready => "good",
        HealthState::Starting
        | HealthState::Standby
        | HealthState::Connecting
        | HealthState::Draining => "warn",
        _ => "bad",
    };
    let note = Some(&status.note).filter(|note| !note.is_empty());
    let lines: Vec<&String> = status.reasons.iter().map(|why| &why.text).chain(note).collect();
    html! {
        header {
            h1 { "walrelay " span.dim { (status.version) } }
            span class={ "state " (tone) } { (status.state.replace('_', " ")) }
            span.dim { "up " (duration(status.uptime_seconds)) }
        }
        @if !lines.is_empty() {
            ul class=(tone) { @for line in lines { li { (line) } } }
        }
    }
}

fn dead_letters(status: &Status) -> Markup {
    let letters = &status.dead_letters;
    let breaker = if letters.breaker_open { "open" } else { "closed" };
    table(
        "Dead letters",
        &[
            ("open", known(letters.open.map(number))),
            (
                "age of the oldest",
                known(letters.oldest_age_seconds.map(|age| duration(age as u64))),
            ),
            ("parked keys", number(u64::try_from(letters.parked_keys).unwrap_or(0))),
            ("breaker", breaker.to_owned()),
            ("failed writes", number(letters.publish_failed)),
        ],
    )
}

fn polled_table(polling: &PollingStatus) -> Markup {
    table(
        "Table",
        &[
            ("rows not published", known(polling.backlog.map(number))),
            (
                "age of the oldest",
                known(polling.backlog_age_seconds.map(|age| duration(age as u64))),
            ),
            ("claims that ran out", number(polling.expired_claims)),
            ("rows cleaned up", number(polling.cleaned_rows)),
        ],
    )
}

fn positions_and_slot(status: &Status, slot: &SlotStatus) -> Markup {
    let bytes = |bytes: i64| binary_size(u64::try_from(bytes).unwrap_or(0));
    html! {
        (table("Log positions", &[
            ("received", status.lsn.received.clone()),
            ("sent to the broker", status.lsn.sent.clone()),
            ("confirmed", status.lsn.confirmed.clone()),
        ]))
        (table("Slot", &[
            ("name", slot.name.clone()),
            ("streaming", if slot.active { "yes" } else { "no" }.to_owned()),
            ("WAL status", slot.wal_status.unwrap_or("not read yet").to_owned()),
            ("lag", format!("{} · {:.1} s", bytes(slot.lag_bytes.confirmed), slot.lag_seconds)),
            ("WAL retained", bytes(slot.retained_wal_bytes)),
            ("WAL until danger", slot.safe_wal_bytes.map_or("no limit known".to_owned(), bytes)),
            ("reconnects", number(status.events.source_reconnects)),
        ]))
    }
}

fn table(title: &str, rows: &[(&str, String)]) -> Markup {
    html! {
        h2 { (title) }
        table {
            @for (name, value) in rows {
                tr { th scope="row" { (name) } td { (value) } }
            }
        }
    }
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| "not known".to_owned())
}

/// `1234567` as `1 234 567`, with narrow no-break spaces.
fn number(value: u64) -> String {
    grouped(value, '\u{202f}')
}

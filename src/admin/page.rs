//! The page for people: one self-contained document without scripts. `maud` escapes all texts.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::status::{AdminView, count, wal_status};
use crate::base::figures::{binary_size, duration, grouped};
use crate::health::{Health, HealthState, Pass, Snapshot};
use crate::metrics::{Metrics, Outcome, Point};

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

pub(super) fn render(view: &AdminView) -> String {
    let (Snapshot { pass, .. }, health) = view.judge();
    let metrics = &*view.metrics;
    let in_flight =
        format!("{} · {}", number(pass.in_flight_events), binary_size(pass.in_flight_bytes));
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
                (heading(view, &health))
                (table("Events", &[
                    ("published", number(metrics.events.at(Outcome::Published).get())),
                    ("dead-lettered", number(metrics.events.at(Outcome::DeadLettered).get())),
                    ("retries", number(metrics.retries.get())),
                    ("in flight", in_flight),
                ]))
                (dead_letters(metrics))
                @match &view.slot {
                    Some(name) => (positions_and_slot(&pass, metrics, name)),
                    None => (polled_table(metrics)),
                }
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

fn heading(view: &AdminView, health: &Health) -> Markup {
    let tone = match health.state {
        HealthState::Streaming | HealthState::Polling if health.reasons.is_empty() => "good",
        HealthState::Starting
        | HealthState::Standby
        | HealthState::Connecting
        | HealthState::Draining => "warn",
        _ => "bad",
    };
    let note = Some(view.facts.note()).filter(|note| !note.is_empty());
    let early = health.reason.filter(|_| health.reasons.is_empty());
    let reasons = health.reasons.iter().copied().chain(early);
    let lines = reasons.map(|reason| reason.to_string()).chain(note);
    let lines: Vec<String> = lines.collect();
    html! {
        header {
            h1 { "walrelay " span.dim { (env!("CARGO_PKG_VERSION")) } }
            span class={ "state " (tone) } { (health.state.text()) }
            span.dim { "up " (duration((view.clock)() / 1000)) }
        }
        @if !lines.is_empty() {
            ul class=(tone) { @for line in lines { li { (line) } } }
        }
    }
}

fn dead_letters(metrics: &Metrics) -> Markup {
    let breaker = if metrics.dlq_breaker_open.get() == 1 { "open" } else { "closed" };
    table(
        "Dead letters",
        &[
            ("open", known(metrics.dlq_depth.get(), number)),
            ("age of the oldest", known(metrics.dlq_oldest_age_seconds.get(), duration)),
            ("parked keys", number(unsigned(metrics.dlq_parked_keys.get()))),
            ("breaker", breaker.to_owned()),
            ("failed writes", number(metrics.dlq_publish_failed.get())),
        ],
    )
}

fn polled_table(metrics: &Metrics) -> Markup {
    table(
        "Table",
        &[
            ("rows not published", known(metrics.backlog.get(), number)),
            ("age of the oldest", known(metrics.backlog_age_seconds.get(), duration)),
            ("claims that ran out", number(metrics.expired_claims.get())),
            ("rows cleaned up", number(metrics.cleaned_rows.get())),
        ],
    )
}

fn positions_and_slot(pass: &Pass, metrics: &Metrics, name: &str) -> Markup {
    let lag_bytes = unsigned(metrics.slot_lag_bytes.at(Point::Confirmed).get());
    let lag = format!("{} · {:.1} s", binary_size(lag_bytes), metrics.slot_lag_seconds.get());
    let safe_wal = count(metrics.slot_safe_wal_bytes.get());
    let safe_wal = safe_wal.map(|bytes| binary_size(unsigned(bytes)));
    html! {
        (table("Log positions", &[
            ("received", pass.received_lsn.to_string()),
            ("sent to the broker", pass.sent_lsn.to_string()),
            ("confirmed", pass.confirmed_lsn.to_string()),
        ]))
        (table("Slot", &[
            ("name", name.to_owned()),
            ("streaming", if metrics.slot_active.get() == 1 { "yes" } else { "no" }.to_owned()),
            ("WAL status", wal_status(metrics).unwrap_or("not read yet").to_owned()),
            ("lag", lag),
            ("WAL retained", binary_size(unsigned(metrics.slot_retained_wal_bytes.get()))),
            ("WAL until danger", safe_wal.unwrap_or_else(|| "no limit known".to_owned())),
            ("reconnects", number(metrics.source_reconnects.get())),
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

fn known(gauge: f64, shown: fn(u64) -> String) -> String {
    count(gauge).map_or_else(|| "not known".to_owned(), |value| shown(unsigned(value)))
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// `1234567` as `1 234 567`, with narrow no-break spaces.
fn number(value: u64) -> String {
    grouped(value, '\u{202f}')
}

//! A comparison as one HTML file, to be put into a design document: no script, no network, plots as
//! inline SVG, and the answer in words before all of them.

mod drawing;
mod plots;
#[cfg(test)]
mod tests;

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::plots::Looks;
use super::measures::{POSTGRES, RELAY};
use super::numbers;
use super::report::{ComparisonReport, ComparisonSettings, RateGroup, Run};
use super::tables::{self, NumberTable};
use super::verdict::{RemarkWeight, Verdict};
use crate::config::units::show_duration;

const STYLE: &str = include_str!("style.css");
const TITLE: &str = "CDC and polling, compared";

/// The whole document.
pub(crate) fn render(report: &ComparisonReport) -> String {
    let (rates, looks) = (report.by_rate(), Looks::new(report));
    let drains = report.drains_by_mode();
    let backlog = drains.iter().map(|drain| drain.result.events).max().unwrap_or(0);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (TITLE) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (TITLE) } p.dim { (report.place()) } }
                (answer(&Verdict::of(report)))
                @if !rates.is_empty() { (figures(report, &rates, &looks)) }
                @if !drains.is_empty() {
                    @let note = format!(
                        "{} events written before the relay began", numbers::count(backlog)
                    );
                    (section("Draining a backlog", &note, plots::drains(&drains, &looks)))
                }
                @let tables = tables::all(report);
                @if !tables.is_empty() {
                    (section("All numbers", "", html! { @for it in &tables { (table(it)) } }))
                }
                (section("How this was measured", "", method(report)))
            }
        }
    };
    page.into_string() + "\n"
}

fn section(title: &str, note: &str, inside: Markup) -> Markup {
    html! {
        section {
            h2 { (title) @if !note.is_empty() { " " span { (note) } } }
            (inside)
        }
    }
}

fn answer(verdict: &Verdict) -> Markup {
    let class = |weight| match weight {
        RemarkWeight::Bad => "bad",
        RemarkWeight::Warning => "warn",
        RemarkWeight::Note => "turn",
    };
    html! {
        p.answer { (verdict.headline()) }
        @if !verdict.remarks.is_empty() {
            ul.remarks {
                @for remark in &verdict.remarks {
                    li class=(class(remark.weight)) { (remark.text) }
                }
            }
        }
    }
}

/// What was measured at each rate, drawn.
fn figures(report: &ComparisonReport, rates: &[RateGroup<'_>], looks: &Looks) -> Markup {
    let known = report.runs.iter().all(|run| run.result.postgres.cpu_s.is_some());
    let unknown = match report.machine.database_is_local {
        true => "The CPU time of Postgres could not be read for every run.",
        false => "The CPU time of Postgres is not known: the database runs on another machine.",
    };
    html! {
        (section(
            "Key figures",
            "INSERT sent to consumer, half of the events and 99 of 100",
            html! { div.grid { @for at in rates { (key_figures(at, looks)) } } },
        ))
        (section(
            "Latency",
            "share of the delivered events that had arrived after this time; further left is \
             sooner, the scale is logarithmic",
            html! { (looks.legend()) (plots::latencies(rates, looks)) },
        ))
        (section(
            "Second by second",
            "the same scales at every rate, logarithmic; a line passes over seconds in which \
             nothing arrived",
            html! { (looks.legend()) (plots::timelines(rates, looks)) },
        ))
        (section(
            "What it cost Postgres",
            "the load's own share taken off",
            html! {
                @if !known { p.note { (unknown) } }
                (plots::costs(POSTGRES, rates, looks))
            },
        ))
        (section("What it cost the relay", "", plots::costs(RELAY, rates, looks)))
    }
}

/// p50 and p99 of everyone, large enough to be read across a table.
fn key_figures(at: &RateGroup<'_>, looks: &Looks) -> Markup {
    html! {
        table.key {
            thead {
                tr {
                    th scope="col" { (numbers::rate(at.rate)) }
                    th scope="col" { "p50" }
                    th scope="col" { "p99" }
                }
            }
            tbody {
                @for run in &at.runs {
                    tr class=(looks.of(run.result.mode)) {
                        th scope="row" {
                            span.who { (looks.sample(run.result.mode)) (run.result.mode.name()) }
                            (badge(run))
                        }
                        (key_figure(run.latencies.p50_ms()))
                        (key_figure(run.latencies.p99_ms()))
                    }
                }
            }
        }
    }
}

fn key_figure(ms: Option<f64>) -> Markup {
    let value = ms.map_or_else(|| "–".to_owned(), numbers::ms);
    let (number, unit) = value.split_once('\u{a0}').unwrap_or((&value, ""));
    html! {
        td { @if ms.is_some() { b { (number) } } @else { (number) } " " span.unit { (unit) } }
    }
}

/// Broken promises stand beside the figures that they belong to.
fn badge(run: &Run) -> Markup {
    let losses = run.result.losses.named(["missing", "twice", "out of order"]);
    html! { @if !losses.is_empty() { " " span.badge { (losses.join(", ")) } } }
}

fn table(table: &NumberTable) -> Markup {
    html! {
        h3 { (table.title) }
        div.wide {
            table.all {
                thead {
                    tr {
                        th scope="col" { "mode" }
                        @for name in &table.columns { th scope="col" { (name) } }
                    }
                }
                @for group in &table.groups {
                    tbody {
                        @if !group.heading.is_empty() {
                            tr.rate {
                                th colspan=(table.columns.len() + 1) scope="rowgroup" {
                                    (group.heading)
                                }
                            }
                        }
                        @for row in &group.rows {
                            tr {
                                th scope="row" { (row.name) }
                                @for cell in &row.cells {
                                    @if cell.alarm { td.bad { b { (cell.text) } } }
                                    @else { td { (cell.text) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What a reader must know before believing a figure, and how to repeat it.
fn method(report: &ComparisonReport) -> Markup {
    let settings = &report.settings;
    html! {
        ul.method {
            li {
                "Latency begins when the INSERT is sent and ends when a consumer of the broker has \
                 the event, by one clock. Each INSERT commits by itself, so that the commit is \
                 inside, for CDC and polling alike."
            }
            li {
                "One mode ran after the other, with the same load: the same rate, sizes and keys, \
                 on the same database and broker."
            }
            li { (load(settings)) }
            li {
                "The load itself can be late; how late is in the table. Where that is much, the \
                 machine was too small for the rate, and the latencies say little."
            }
            li {
                "What Postgres did is the difference of its own statistics between the beginning \
                 and the end of a run, with the share of the load itself taken off. Tuples are \
                 those of the outbox table. Transactions are all of the database's and WAL is all \
                 of the server's, so that others who work meanwhile are counted, too. "
                @if report.machine.database_is_local {
                    "CPU time is that of the database's processes that worked for the relay: the \
                     walsender of the slot or the connections of polling, and vacuum at its table."
                } @else {
                    "The database runs on another machine, so that its CPU time is not known."
                }
            }
            li {
                "An update or a delete leaves a dead tuple behind, which counts whether or not \
                 vacuum has removed it by the end."
            }
            li {
                "Missing: written and never seen. Duplicated: deliveries beyond the first. Out of \
                 order: first deliveries that came behind a later event of their key. What is \
                 missing has no latency, and is in no percentile."
            }
        }
        @if !settings.rates.is_empty() {
            p { "To repeat it:" }
            pre { code { (command(settings)) } }
        }
    }
}

fn load(settings: &ComparisonSettings) -> String {
    let backlog = match settings.backlog_events {
        0 => String::new(),
        events => format!(
            " A drained backlog has {} events, written before the relay begins.",
            numbers::count(events)
        ),
    };
    format!(
        "Each run lasts {}, after a warm-up that does not count; payloads of {}, {} ordering \
         keys.{backlog}",
        numbers::seconds(settings.duration_s),
        numbers::bytes(settings.payload_bytes as f64),
        numbers::count(settings.keys),
    )
}

/// The command line that asks for the same.
fn command(settings: &ComparisonSettings) -> String {
    let show = |ms| show_duration(Duration::from_millis(ms));
    let rates: Vec<String> = settings.rates.iter().map(u32::to_string).collect();
    let intervals: Vec<String> = settings.intervals_ms.iter().map(|ms| show(*ms)).collect();
    let intervals = if intervals.is_empty() { "none".to_owned() } else { intervals.join(",") };
    format!(
        "walrelay compare --rates {} --intervals {intervals} --duration {} --backlog {}",
        rates.join(","),
        show((settings.duration_s * 1000.0).round() as u64),
        settings.backlog_events
    )
}

//! A comparison as one HTML file: no script, no
//! network, plots as inline SVG, and the verdict first.

mod drawing;
mod plots;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::plots::Plots;
use super::measures::{POSTGRES, RELAY};
use super::numbers;
use super::plan::{ComparisonPlan, KEYS, PAYLOAD_BYTES};
use super::report::{ComparisonReport, RateGroup, Run};
use super::tables::{self, NumberTable};
use super::verdict::{RemarkWeight, Verdict};

const STYLE: &str = include_str!("style.css");
const METHOD: &str = include_str!("method.html");
const TITLE: &str = "CDC and polling, compared";

pub(crate) fn render(report: &ComparisonReport) -> String {
    let rates = report.by_rate();
    let plots = Plots::new(report, &rates);
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
                @if !rates.is_empty() { (figures(report, &rates, &plots)) }
                @if !drains.is_empty() {
                    @let note = format!(
                        "{} events written before the relay began", numbers::count(backlog)
                    );
                    (section("Draining a backlog", &note, plots.drains(&drains)))
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

fn figures(report: &ComparisonReport, rates: &[RateGroup<'_>], plots: &Plots<'_>) -> Markup {
    let known = report.runs.iter().all(|run| run.result.postgres.cpu_s.is_some());
    let unknown = match report.machine.database_is_local {
        true => "The CPU time of Postgres could not be read for every run.",
        false => "The CPU time of Postgres is not known: the database runs on another machine.",
    };
    html! {
        (section(
            "Key figures",
            "INSERT sent to consumer, half of the events and 99 of 100",
            html! { div.grid { @for at in rates { (key_figures(at, plots)) } } },
        ))
        (section(
            "Latency",
            "share of the delivered events that had arrived after this time; further left is \
             sooner, the scale is logarithmic",
            html! { (plots.legend()) (plots.latencies()) },
        ))
        (section(
            "Second by second",
            "the same scales at every rate, logarithmic; a line passes over seconds in which \
             nothing arrived",
            html! { (plots.legend()) (plots.timelines()) },
        ))
        (section(
            "What it cost Postgres",
            "the load's own share taken off",
            html! {
                @if !known { p.note { (unknown) } }
                (plots.costs(POSTGRES))
            },
        ))
        (section("What it cost the relay", "", plots.costs(RELAY)))
    }
}

/// p50 and p99 of every mode in large digits.
fn key_figures(at: &RateGroup<'_>, plots: &Plots<'_>) -> Markup {
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
                    tr class=(plots.class(run.result.mode)) {
                        th scope="row" {
                            span.who { (plots.sample(run.result.mode)) (run.result.mode.name()) }
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

/// Lost, repeated and reordered events, beside the figures of their run.
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
                        @for name in table.columns() { th scope="col" { (name) } }
                    }
                }
                @for (heading, rows) in &table.groups {
                    tbody {
                        @if !heading.is_empty() {
                            tr.rate {
                                th colspan=(table.columns().len() + 1) scope="rowgroup" { (heading) }
                            }
                        }
                        @for row in rows {
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

fn method(report: &ComparisonReport) -> Markup {
    let ComparisonPlan { rates, duration, backlog, .. } = &report.plan;
    html! {
        ul.method {
            (PreEscaped(METHOD))
            li {
                "Each run lasts " (numbers::seconds(duration.as_secs_f64()))
                ", after a warm-up that does not count; payloads of "
                (numbers::bytes(PAYLOAD_BYTES as f64)) ", " (numbers::count(KEYS))
                " ordering keys."
                @if *backlog > 0 {
                    " A drained backlog has " (numbers::count(*backlog))
                    " events, written before the relay begins."
                }
            }
            li {
                @if report.machine.database_is_local {
                    "CPU time is that of the database's processes that worked for the relay: the \
                     walsender of the slot or the connections of polling, and vacuum at its table."
                } @else {
                    "The database runs on another machine, so that its CPU time is not known."
                }
            }
        }
        @if !rates.is_empty() {
            p { "To repeat it:" }
            pre { code { (report.plan.command()) } }
        }
    }
}

//! A comparison as one HTML file without network: the tables, and the figures from which its script draws the
//! plots with the script of the console.

#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use walrelay_measure::latency::Latencies;
use walrelay_measure::numbers;
use walrelay_measure::table::Table;

use super::plan::{ComparisonPlan, KEYS, PAYLOAD_BYTES};
use super::report::{ComparisonReport, RateGroup, Run, Second};
use super::tables;

const STYLES: [&str; 2] = [walrelay_base::web::PAGE_CSS, include_str!("style.css")];
const SCRIPTS: [&str; 3] =
    [walrelay_base::web::FORMAT_JS, walrelay_base::web::PLOT_JS, include_str!("comparison.js")];
const METHOD: &str = include_str!("method.html");
const TITLE: &str = "CDC and polling, compared";
/// Lets the browser load nothing, whatever the page says.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";
/// The places on the axis of percentiles: a tenth of a nine apart, up to 99.99 %.
const PLACES: std::ops::RangeInclusive<u32> = 0..=40;

pub fn render(report: &ComparisonReport) -> String {
    let rates = report.by_rate();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (TITLE) }
                style { (PreEscaped(STYLES.concat())) }
            }
            body {
                header { h1 { (TITLE) } p.dim { (report.place()) } }
                @if let Some(why) = &report.incomplete {
                    p.answer.bad { "This comparison is incomplete: " (why) "." }
                }
                p.answer { (tables::conclusion(report)) }
                @let factors = tables::factors(report);
                @if !factors.rows().is_empty() { (table(&factors)) }
                @if !rates.is_empty() {
                    (plots("percentiles", "Latency", "from the INSERT to the consumer"))
                    (plots("seconds", "Second by second", ""))
                    noscript { p.dim { "The plots need JavaScript." } }
                }
                h2 { "All numbers" }
                @for it in &tables::all(report) { (table(it)) }
                h2 { "How this was measured" }
                (method(report))
                script #figures type="application/json" { (PreEscaped(figures(&rates))) }
                script type="module" { (PreEscaped(script())) }
            }
        }
    };
    page.into_string() + "\n"
}

fn plots(id: &str, title: &str, note: &str) -> Markup {
    html! {
        section {
            h2 { (title) " " span.dim { (note) } }
            div.plots id=(id) {}
        }
    }
}

fn table(table: &Table) -> Markup {
    let lost =
        |at: usize, cell: &str| tables::LOSSES.contains(&&*table.header()[at]) && cell != "0";
    html! {
        h3 { (table.title()) }
        div.wide {
            table.plain {
                thead { tr { @for name in table.header() { th scope="col" { (name) } } } }
                tbody {
                    @for row in table.rows() {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                td class=[lost(at, cell).then_some("bad")] { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The modules of the script as one: nothing can be imported from a file that is alone.
fn script() -> String {
    let lines = SCRIPTS.iter().flat_map(|text| text.lines());
    let lines = lines.filter(|line| !line.starts_with("import "));
    lines.flat_map(|line| [line.strip_prefix("export ").unwrap_or(line), "\n"]).collect()
}

/// The figures of the plots as JSON that cannot end its element.
fn figures(rates: &[RateGroup<'_>]) -> String {
    let rates: Vec<Value> = rates.iter().map(of_rate).collect();
    json!({ "rates": rates }).to_string().replace('<', "\\u003c")
}

/// For each place on an axis the values of all modes.
fn of_rate(at: &RateGroup<'_>) -> Value {
    let modes: Vec<String> = at.runs.iter().map(|run| run.result.mode.name()).collect();
    let curves: Vec<Vec<Option<f64>>> =
        at.runs.iter().map(|run| percentiles(&run.latencies)).collect();
    let percentiles = PLACES.filter_map(|place| {
        let ms: Vec<_> = curves.iter().map(|curve| curve[place as usize]).collect();
        let is_known = ms.iter().any(Option::is_some);
        is_known.then(|| json!({ "at": f64::from(place) / 10.0, "ms": ms }))
    });
    let longest = at.runs.iter().map(|run| run.seconds.len()).max().unwrap_or(0);
    let seconds = (0..longest).map(|second| {
        let of_each = |of: fn(&Second) -> Option<f64>| -> Vec<Option<f64>> {
            at.runs.iter().map(|run: &&Run| run.seconds.get(second).and_then(of)).collect()
        };
        json!({
            "at": second,
            "p50_ms": of_each(|it| it.p50_ms),
            "p99_ms": of_each(|it| it.p99_ms),
            "backlog": of_each(|it| Some(it.backlog as f64)),
        })
    });
    let (percentiles, seconds): (Vec<_>, Vec<_>) = (percentiles.collect(), seconds.collect());
    json!({ "rate": at.name(), "modes": modes, "percentiles": percentiles, "seconds": seconds })
}

/// The latency at each of the [`PLACES`]; none above the last event.
fn percentiles(latencies: &Latencies) -> Vec<Option<f64>> {
    let shares = PLACES.map(|place| 1.0 - 10_f64.powf(-f64::from(place) / 10.0));
    let known = |share: &f64| (1.0 - share) * latencies.count() as f64 >= 1.0;
    shares.map(|share| known(&share).then(|| latencies.quantile_ms(share)).flatten()).collect()
}

fn method(report: &ComparisonReport) -> Markup {
    let ComparisonPlan { rates, duration, backlog, .. } = &report.plan;
    html! {
        ul.method {
            (PreEscaped(METHOD))
            li {
                "Each run lasts " (numbers::seconds(duration.as_secs_f64()))
                ", after a warm-up that does not count; payloads of "
                (numbers::bytes(PAYLOAD_BYTES as u64)) ", " (numbers::count(KEYS))
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

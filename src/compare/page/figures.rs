//! The key figures: p50 and p99 of everyone, large enough to be read across a table.

use crate::base::html::escape;
use crate::compare::report::Run;

use super::lineup::{AtRate, Lineup, name};
use super::plot::sample;
use super::text;

pub(super) fn section(rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    let cards: String = rates.iter().map(|at| card(at, lineup)).collect();
    format!("<div class=\"grid\">\n{cards}</div>\n")
}

fn card(at: &AtRate<'_>, lineup: &Lineup) -> String {
    let rows: String = at.runs.iter().map(|run| row(run, lineup.look(run.mode))).collect();
    let rate = text::rate(at.rate);
    format!(
        "<table class=\"key\">\n<thead><tr><th scope=\"col\">{rate}</th><th scope=\"col\">p50</th>\
         <th scope=\"col\">p99</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    )
}

fn row(run: &Run, look: &str) -> String {
    let (line, name) = (sample(look), escape(&name(run.mode)));
    let cell = |share: f64| {
        if run.latencies_us.is_empty() {
            return "<td>– <span class=\"unit\"></span></td>".to_owned();
        }
        let value = text::ms(run.quantile_ms(share));
        let (number, unit) = value.split_once('\u{a0}').unwrap_or((&value, ""));
        format!("<td><b>{number}</b> <span class=\"unit\">{unit}</span></td>")
    };
    let (p50, p99, badge) = (cell(0.5), cell(0.99), badge(run));
    format!(
        "<tr class=\"{look}\"><th scope=\"row\"><span class=\"who\">{line}{name}</span>{badge}</th>{p50}{p99}</tr>\n"
    )
}

/// Broken promises stand beside the figures that they belong to.
fn badge(run: &Run) -> String {
    let parts: Vec<String> =
        [(run.missing, "missing"), (run.duplicated, "twice"), (run.out_of_order, "out of order")]
            .into_iter()
            .filter(|(events, _)| *events > 0)
            .map(|(events, what)| format!("{} {what}", text::count(events)))
            .collect();
    if parts.is_empty() {
        return String::new();
    }
    format!(" <span class=\"badge\">{}</span>", parts.join(", "))
}

//! A comparison as one HTML file, to be put into a design document: no script, no network, plots as
//! inline SVG, and the answer in words before all of them.

use super::report::Report;
use crate::base::html::escape;
use crate::base::time::rfc3339;

mod bars;
mod cdf;
mod cost;
mod drain;
mod figures;
mod lineup;
mod measure;
mod method;
mod plot;
mod scale;
#[cfg(test)]
mod scale_tests;
mod svg;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
#[cfg(test)]
mod text_tests;
mod timeline;
mod verdict;

use self::lineup::Lineup;
use self::verdict::Tone;

const STYLE: &str = include_str!("style.css");

/// The whole document.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>CDC and polling, compared</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>CDC and polling, compared</h1>\n<p class=\"dim\">{}</p>\n</header>\n",
        place(report)
    );
    answer(&mut html, report);
    let rates = lineup::by_rate(report);
    let lineup = Lineup::of(report);
    if !rates.is_empty() {
        let legend = plot::legend(&lineup);
        section(
            &mut html,
            "Key figures",
            "INSERT sent to consumer, half of the events and 99 of 100",
            &figures::section(&rates, &lineup),
        );
        section(
            &mut html,
            "Latency",
            "share of the delivered events that had arrived after this time; further left is sooner, the scale is logarithmic",
            &(legend.clone() + &cdf::section(&rates, &lineup)),
        );
        section(
            &mut html,
            "Second by second",
            "the same scales at every rate, logarithmic; a line passes over seconds in which nothing arrived",
            &(legend.clone() + &timeline::section(&rates, &lineup)),
        );
        section(
            &mut html,
            "What it cost Postgres",
            "the load's own share taken off",
            &(cpu_unknown(report) + &cost::postgres(&rates, &lineup)),
        );
        section(&mut html, "What it cost the relay", "", &cost::relay(&rates, &lineup));
    }
    if !report.drains.is_empty() {
        section(
            &mut html,
            "Draining a backlog",
            &backlog(report),
            &drain::section(report, &lineup),
        );
    }
    let tables = table::section(report, &rates);
    if !tables.is_empty() {
        section(&mut html, "All numbers", "", &tables);
    }
    section(&mut html, "How this was measured", "", &method::section(report));
    html.push_str("</body>\n</html>\n");
    html
}

fn section(html: &mut String, title: &str, note: &str, inside: &str) {
    let (title, note) = (escape(title), escape(note));
    let note = if note.is_empty() { note } else { format!(" <span>{note}</span>") };
    html.push_str(&format!("<section>\n<h2>{title}{note}</h2>\n{inside}</section>\n"));
}

/// When and where.
fn place(report: &Report) -> String {
    let began = rfc3339(report.began_unix_us);
    let date = began.get(..16).unwrap_or(&began).replace('T', " ");
    let mut parts = vec![format!("{date} UTC")];
    if !report.postgres_version.is_empty() {
        parts.push(format!("PostgreSQL {}", report.postgres_version));
    }
    let sink = match report.sink.as_str() {
        "kafka" => "Kafka",
        "rabbitmq" => "RabbitMQ",
        other => other,
    };
    match (sink, report.broker.as_str()) {
        ("", "") => {}
        (sink, "") => parts.push(sink.to_owned()),
        (sink, broker) => parts.push(format!("{sink} at {broker}")),
    }
    let machine = &report.machine;
    if machine.cores > 0 {
        let word = if machine.cores == 1 { "core" } else { "cores" };
        parts.push(format!("{} {word}", machine.cores));
        parts.push(format!("{} of memory", text::bytes(machine.memory_bytes as f64)));
        parts.push(format!("load average {} before", text::figure(machine.load_average)));
    }
    escape(&parts.join(" · "))
}

fn answer(html: &mut String, report: &Report) {
    let verdict = verdict::of(report);
    html.push_str(&format!("<p class=\"answer\">{}</p>\n", escape(&verdict.headline)));
    if verdict.remarks.is_empty() {
        return;
    }
    html.push_str("<ul class=\"remarks\">\n");
    for remark in &verdict.remarks {
        let class = match remark.tone {
            Tone::Bad => "bad",
            Tone::Warn => "warn",
            Tone::Turn => "turn",
        };
        html.push_str(&format!("<li class=\"{class}\">{}</li>\n", escape(&remark.text)));
    }
    html.push_str("</ul>\n");
}

fn cpu_unknown(report: &Report) -> String {
    let known = report.runs.iter().all(|run| run.postgres.cpu_s.is_some());
    let why = match (known, report.machine.database_is_local) {
        (true, _) => return String::new(),
        (false, true) => "The CPU time of Postgres could not be read for every run.",
        (false, false) => {
            "The CPU time of Postgres is not known: the database runs on another machine."
        }
    };
    format!("<p class=\"note\">{why}</p>\n")
}

fn backlog(report: &Report) -> String {
    let events = report.drains.iter().map(|drain| drain.events).max().unwrap_or(0);
    format!("{} events written before the relay began", text::count(events))
}

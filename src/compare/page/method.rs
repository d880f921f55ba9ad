//! How it was measured: what a reader must know before believing a figure, and how to repeat it.

use crate::base::html::escape;
use crate::compare::report::{Report, Settings};

use super::text;

pub(super) fn section(report: &Report) -> String {
    let settings = &report.settings;
    let cpu = if report.machine.database_is_local {
        "CPU time is that of the database's processes that worked for the relay: the walsender of \
         the slot or the connections of polling, and vacuum at its table."
    } else {
        "The database runs on another machine, so that its CPU time is not known."
    };
    let points = [
        "Latency begins when the INSERT is sent and ends when a consumer of the broker has the \
         event, by one clock. Each INSERT commits by itself, so that the commit is inside, for CDC \
         and polling alike."
            .to_owned(),
        "One mode ran after the other, with the same load: the same rate, sizes and keys, on the \
         same database and broker."
            .to_owned(),
        load(settings),
        "The load itself can be late; how late is in the table. Where that is much, the machine \
         was too small for the rate, and the latencies say little."
            .to_owned(),
        format!(
            "What Postgres did is the difference of its own statistics between the beginning and \
             the end of a run, with the share of the load itself taken off. Tuples are those of the \
             outbox table. Transactions are all of the database's and WAL is all of the server's, so \
             that others who work meanwhile are counted, too. {cpu}"
        ),
        "An update or a delete leaves a dead tuple behind, which counts whether or not vacuum has \
         removed it by the end."
            .to_owned(),
        "Missing: written and never seen. Duplicated: deliveries beyond the first. Out of order: \
         first deliveries that came behind a later event of their key. What is missing has no latency, \
         and is in no percentile."
            .to_owned(),
    ];
    let points: String =
        points.iter().map(|point| format!("<li>{}</li>\n", escape(point))).collect();
    let mut html = format!("<ul class=\"method\">\n{points}</ul>\n");
    if !settings.rates.is_empty() {
        let command = escape(&command(settings));
        html.push_str(&format!("<p>To repeat it:</p>\n<pre><code>{command}</code></pre>\n"));
    }
    html
}

fn load(settings: &Settings) -> String {
    let backlog = match settings.backlog_events {
        0 => String::new(),
        events => format!(
            " A drained backlog has {} events, written before the relay begins.",
            text::count(events)
        ),
    };
    format!(
        "Each run lasts {}, after a warm-up that does not count; payloads of {}, {} ordering \
         keys.{backlog}",
        text::seconds(settings.duration_s),
        text::bytes(settings.payload_bytes as f64),
        text::count(settings.keys as u64),
    )
}

/// The command line that asks for the same.
fn command(settings: &Settings) -> String {
    let rates: Vec<String> = settings.rates.iter().map(u32::to_string).collect();
    let intervals: Vec<String> = settings.intervals_ms.iter().map(|ms| interval(*ms)).collect();
    let intervals = if intervals.is_empty() { "none".to_owned() } else { intervals.join(",") };
    let duration = interval((settings.duration_s * 1000.0).round() as u64);
    format!(
        "walrelay compare --rates {} --intervals {intervals} --duration {duration} --backlog {}",
        rates.join(","),
        settings.backlog_events
    )
}

/// `500ms`, `2s`: as the command line takes it.
fn interval(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

//! What went wrong: promises that were broken, and loads that were not what was asked for.

use crate::compare::report::{Mode, Report};

use super::super::lineup::{long, order};
use super::super::text;
use super::{Remark, Tone};

/// A load that is later than this did not come as evenly as it says.
const LATE_MS: f64 = 50.0;
/// Nor did one that wrote less than this of what was asked for.
const WRITTEN_LEAST: f64 = 0.95;

/// What one run or drain did to the events.
struct Count {
    place: (u32, u64),
    name: String,
    events: u64,
    missing: u64,
    duplicated: u64,
    out_of_order: u64,
}

fn counts(report: &Report) -> Vec<Count> {
    let runs = report.runs.iter().map(|run| Count {
        place: (run.rate, order(run.mode)),
        name: format!("{} at {}", upper(&long(run.mode)), text::rate(run.rate)),
        events: run.events,
        missing: run.missing,
        duplicated: run.duplicated,
        out_of_order: run.out_of_order,
    });
    let drains = report.drains.iter().map(|drain| Count {
        place: (u32::MAX, order(drain.mode)),
        name: format!("{}, draining a backlog", upper(&long(drain.mode))),
        events: drain.events,
        missing: drain.missing,
        duplicated: drain.duplicated,
        out_of_order: drain.out_of_order,
    });
    let mut counts: Vec<Count> = runs.chain(drains).collect();
    counts.sort_by_key(|count| count.place);
    counts
}

/// Every event that is missing, came twice or came out of its order.
pub(super) fn faults(report: &Report) -> Vec<Remark> {
    let told = counts(report).into_iter().filter_map(|count| {
        let parts: Vec<String> = [
            (count.missing, "missing"),
            (count.duplicated, "delivered more than once"),
            (count.out_of_order, "out of order"),
        ]
        .into_iter()
        .filter(|(events, _)| *events > 0)
        .map(|(events, what)| format!("{} {what}", text::count(events)))
        .collect();
        let broken = count.missing > 0 || count.out_of_order > 0;
        let tone = if broken { Tone::Bad } else { Tone::Warn };
        let of = text::count(count.events);
        let text = format!("{}: of {of} events, {}.", count.name, text::list(&parts));
        (!parts.is_empty()).then_some(Remark { tone, text })
    });
    told.collect()
}

/// That all came, once and in order: only for whom there are events.
pub(super) fn clean(report: &Report) -> Option<String> {
    counts(report).iter().any(|count| count.events > 0).then(|| {
        let modes = report.runs.iter().map(|run| run.mode);
        let modes: Vec<Mode> = modes.chain(report.drains.iter().map(|drain| drain.mode)).collect();
        let both = modes.contains(&Mode::Cdc) && modes.iter().any(|mode| *mode != Mode::Cdc);
        let end = if both { " in either" } else { "" };
        format!("Nothing was lost, nothing came twice and nothing out of order{end}.")
    })
}

/// Why the figures may say less than they seem to.
pub(super) fn doubts(report: &Report) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut late = |runs: Vec<String>, what: &str| {
        if !runs.is_empty() {
            let text = format!(
                "{what}: {}. The machine may be too small for this rate, and the latencies say \
                 little there.",
                text::list(&runs)
            );
            remarks.push(Remark { tone: Tone::Warn, text });
        }
    };
    let mut runs: Vec<_> = report.runs.iter().collect();
    runs.sort_by_key(|run| (run.rate, order(run.mode)));
    let name = |run: &crate::compare::report::Run| {
        format!("{} at {}", long(run.mode), text::rate(run.rate))
    };
    let behind = runs.iter().filter(|run| run.load_late_p99_ms > LATE_MS);
    late(
        behind.map(|r| format!("{} (p99 {})", name(r), text::ms(r.load_late_p99_ms))).collect(),
        "The load itself was late",
    );
    let short = runs.iter().filter(|r| r.written_per_second < f64::from(r.rate) * WRITTEN_LEAST);
    late(
        short.map(|r| format!("{} ({}/s)", name(r), text::figure(r.written_per_second))).collect(),
        "Fewer events were written than asked for",
    );
    let machine = &report.machine;
    if machine.cores > 0 && machine.load_average > machine.cores as f64 {
        let (load, cores) = (text::figure(machine.load_average), machine.cores);
        let text = format!(
            "The machine was busy before the first run: a load average of {load} on {cores} cores."
        );
        remarks.push(Remark { tone: Tone::Warn, text });
    }
    remarks
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

//! What went wrong: promises that were broken, and loads that were not what was asked for.

use crate::compare::report::{Mode, Report, Run};

use super::super::lineup::{long, order};
use super::super::text;
use super::{Remark, Tone};

/// A load that is later than this did not come as evenly as it says.
const LATE_MS: f64 = 50.0;
/// Nor did one that wrote less than this of what was asked for.
const WRITTEN_LEAST: f64 = 0.95;

/// What one run or drain did to the events; drains come last.
#[derive(Default)]
struct Count {
    mode: Mode,
    rate: u32,
    name: String,
    events: u64,
    missing: u64,
    duplicated: u64,
    out_of_order: u64,
}

fn counts(report: &Report) -> Vec<Count> {
    let runs = report.runs.iter().map(|run| Count {
        mode: run.mode,
        rate: run.rate,
        name: format!("{} at {}", upper(&long(run.mode)), text::rate(run.rate)),
        events: run.events,
        missing: run.missing,
        duplicated: run.duplicated,
        out_of_order: run.out_of_order,
    });
    let drains = report.drains.iter().map(|drain| Count {
        mode: drain.mode,
        rate: u32::MAX,
        name: format!("{}, draining a backlog", upper(&long(drain.mode))),
        events: drain.events,
        missing: drain.missing,
        duplicated: drain.duplicated,
        out_of_order: drain.out_of_order,
    });
    let mut counts: Vec<Count> = runs.chain(drains).collect();
    counts.sort_by_key(|count| (count.rate, order(count.mode)));
    counts
}

impl Count {
    /// `3 missing and 1 out of order`; none when all came, once and in order.
    fn told(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.missing, "missing"),
            (self.duplicated, "delivered more than once"),
            (self.out_of_order, "out of order"),
        ]
        .into_iter()
        .filter(|(events, _)| *events > 0)
        .map(|(events, what)| format!("{} {what}", text::count(events)))
        .collect();
        (!parts.is_empty()).then(|| text::list(&parts))
    }
}

/// That it is not all; none when it is.
pub(super) fn cut_short(report: &Report) -> Option<Remark> {
    let why = report.incomplete.as_ref()?;
    let text = format!("This comparison is incomplete: {why}.");
    Some(Remark { tone: Tone::Bad, text })
}

/// Every run and drain in which events are missing, came twice or came out of their order.
pub(super) fn faults(report: &Report) -> Vec<Remark> {
    let told = counts(report).into_iter().filter_map(|count| {
        let broken = count.missing > 0 || count.out_of_order > 0;
        let tone = if broken { Tone::Bad } else { Tone::Warn };
        let (name, events) = (&count.name, text::count(count.events));
        let text = format!("{name}: of {events} events, {}.", count.told()?);
        Some(Remark { tone, text })
    });
    told.collect()
}

/// What became of all events, in a sentence; none when there were none.
pub(super) fn sum(report: &Report) -> Option<String> {
    let counts = counts(report);
    let of = |cdc: bool| -> Count {
        let mut sum = Count::default();
        for count in counts.iter().filter(|count| (count.mode == Mode::Cdc) == cdc) {
            sum.events = sum.events.saturating_add(count.events);
            sum.missing = sum.missing.saturating_add(count.missing);
            sum.duplicated = sum.duplicated.saturating_add(count.duplicated);
            sum.out_of_order = sum.out_of_order.saturating_add(count.out_of_order);
        }
        sum
    };
    let (cdc, polling) = (of(true), of(false));
    let broken: Vec<String> = [("CDC", &cdc), ("polling", &polling)]
        .into_iter()
        .filter_map(|(name, sum)| Some(format!("of all events with {name}, {}", sum.told()?)))
        .collect();
    if !broken.is_empty() {
        return Some(format!("But {}.", broken.join("; ")));
    }
    let end = if cdc.events > 0 && polling.events > 0 { " in either" } else { "" };
    (cdc.events > 0 || polling.events > 0)
        .then(|| format!("Nothing was lost, nothing came twice and nothing out of order{end}."))
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
    let name = |run: &Run| format!("{} at {}", long(run.mode), text::rate(run.rate));
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

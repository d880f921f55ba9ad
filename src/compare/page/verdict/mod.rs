//! What the figures come to, in words. It says what they say, whoever it speaks for.

use crate::compare::report::{Mode, Report, Run};

use super::lineup::{AtRate, by_rate, long};
use super::text;

#[cfg(test)]
mod tests;
mod trouble;
mod turns;

/// The answer in a sentence or two, and what must be known beside it.
pub(super) struct Verdict {
    pub(super) headline: String,
    pub(super) remarks: Vec<Remark>,
}

/// Something that a reader must not miss.
pub(super) struct Remark {
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// A promise was broken, or part of it is not there.
    Bad,
    /// The figures are to be read with this in mind.
    Warn,
    /// Polling is better here.
    Turn,
}

/// Smaller differences are called none.
const ALIKE: f64 = 0.05;

pub(super) fn of(report: &Report) -> Verdict {
    let rates = by_rate(report);
    let mut headline = headline(report, &rates);
    if let Some(sentence) = trouble::sum(report) {
        headline.push(' ');
        headline.push_str(&sentence);
    }
    let mut remarks: Vec<Remark> = trouble::cut_short(report).into_iter().collect();
    remarks.extend(trouble::faults(report));
    remarks.extend(turns::all(report, &rates));
    remarks.extend(trouble::doubts(report));
    Verdict { headline, remarks }
}

fn headline(report: &Report, rates: &[AtRate<'_>]) -> String {
    let pairs: Vec<(&Run, &Run)> =
        rates.iter().filter_map(|at| Some((at.cdc()?, middle(&at.polling()).copied()?))).collect();
    if let Some((cdc, polling)) = middle(&pairs) {
        return side_by_side(cdc, polling);
    }
    let has = |cdc: bool| report.runs.iter().any(|run| (run.mode == Mode::Cdc) == cdc);
    match (has(true), has(false), report.drains.is_empty()) {
        (true, true, _) => {
            "CDC and polling have no rate in common, so that there is nothing to set \
                            side by side."
                .to_owned()
        }
        (true, false, _) => alone(report, "Only CDC was measured", "polling"),
        (false, true, _) => alone(report, "Only polling was measured", "CDC"),
        (false, false, false) => "Only backlogs were measured, and no latency.".to_owned(),
        (false, false, true) => "Nothing was measured.".to_owned(),
    }
}

/// One kind of run, and nothing to compare it with.
fn alone(report: &Report, start: &str, absent: &str) -> String {
    let runs: Vec<&Run> = report.runs.iter().collect();
    let seen = middle(&runs).filter(|run| !run.latencies_us.is_empty());
    let example = seen.map_or_else(String::new, |run| {
        format!(
            ": {} at {} has a p50 of {} and a p99 of {}",
            long(run.mode),
            text::rate(run.rate),
            text::ms(run.quantile_ms(0.5)),
            text::ms(run.quantile_ms(0.99))
        )
    });
    format!("{start}{example}. Without {absent} there is nothing to compare.")
}

fn side_by_side(cdc: &Run, polling: &Run) -> String {
    let (at, other) = (text::rate(cdc.rate), long(polling.mode));
    for (run, name) in [(cdc, "the slot"), (polling, other.as_str())] {
        if run.latencies_us.is_empty() {
            return format!("At {at} nothing arrived from {name}: there is nothing to compare.");
        }
    }
    let sooner = |share: f64| ratio(polling.quantile_ms(share), cdc.quantile_ms(share));
    let (Some(p50), Some(p99)) = (sooner(0.5), sooner(0.99)) else {
        return format!("At {at} latencies are too small to be set side by side.");
    };
    let tail = match (lean(p50), lean(p99)) {
        (a, Lean::Alike) if a != Lean::Alike => " (p99 alike)".to_owned(),
        (Lean::More, Lean::More) => format!(" (p99 {})", text::factor(p99)),
        (Lean::Less, Lean::Less) => format!(" (p99 {})", text::factor(1.0 / p99)),
        (_, Lean::More) => format!(" (but the slot's p99 is {} shorter)", text::factor(p99)),
        (_, Lean::Less) => format!(" (but the slot's p99 is {} as long)", text::factor(1.0 / p99)),
        _ => String::new(),
    };
    let start = match lean(p50) {
        Lean::More => format!("the slot delivers {} sooner than {other}", text::factor(p50)),
        Lean::Less => format!("{other} delivers {} sooner than the slot", text::factor(1.0 / p50)),
        Lean::Alike => format!("the slot and {other} deliver equally soon"),
    };
    let cost = cpu(cdc, polling, lean(p50) == Lean::More);
    format!("At {at} {start}{tail}{cost}")
}

/// How the sentence ends: the slot's share of polling's CPU time.
fn cpu(cdc: &Run, polling: &Run, about_the_slot: bool) -> String {
    let (Some(ours), Some(theirs)) =
        ((super::measure::POSTGRES_CPU.of)(cdc), (super::measure::POSTGRES_CPU.of)(polling))
    else {
        return ". What either cost Postgres in CPU time is not known.".to_owned();
    };
    let Some(share) = ratio(ours, theirs) else {
        let less = if ours > theirs { "polling" } else { "the slot" };
        return if ours == theirs {
            ". Neither took Postgres any CPU time that could be seen.".to_owned()
        } else {
            format!(". The Postgres CPU time of {less} is too little to be seen.")
        };
    };
    let amount = match lean(share) {
        Lean::Less => text::percent(share),
        Lean::More => text::factor(share),
        Lean::Alike => "as much".to_owned(),
    };
    match (about_the_slot, lean(share)) {
        (true, Lean::Alike) => " and takes as much Postgres CPU.".to_owned(),
        (true, _) => format!(" and takes {amount} of its Postgres CPU."),
        (false, Lean::Alike) => "; the slot takes as much Postgres CPU.".to_owned(),
        (false, _) => format!("; the slot takes {amount} of polling's Postgres CPU."),
    }
}

/// Where a ratio leans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lean {
    More,
    Less,
    Alike,
}

fn lean(ratio: f64) -> Lean {
    if ratio > 1.0 + ALIKE {
        Lean::More
    } else if ratio < 1.0 - ALIKE {
        Lean::Less
    } else {
        Lean::Alike
    }
}

/// None when one of the two is nothing.
fn ratio(above: f64, below: f64) -> Option<f64> {
    (above > 0.0 && below > 0.0).then(|| above / below).filter(|ratio| ratio.is_finite())
}

fn middle<T>(items: &[T]) -> Option<&T> {
    items.get(items.len().saturating_sub(1) / 2)
}

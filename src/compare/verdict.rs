//! The verdict on the figures in words, for the terminal and the page alike, whether it speaks for
//! the slot or for polling.

use std::cmp::Ordering;

use super::measures::{POSTGRES, POSTGRES_CPU, RELAY};
use super::numbers;
use super::plan::CaptureMode;
use super::report::{ComparisonReport, Drain, EventCounts, RateGroup, Run, RunResult};

/// Values that differ by a smaller share count as equal.
const ALIKE: f64 = 0.05;
/// More places than these are counted instead of named.
const NAMED_MAX: usize = 3;
/// A load whose p99 is later than this was not even.
const LATE_MS: f64 = 50.0;
/// A load that wrote a smaller share of its rate was too slow.
const WRITTEN_LEAST: f64 = 0.95;
/// For missing, duplicated and reordered events.
const LOSSES: [&str; 3] = ["missing", "delivered more than once", "out of order"];

pub(crate) struct Verdict {
    /// For each rate the slot beside the polling with the lowest latency; never empty.
    comparisons: Vec<String>,
    /// Whether events were lost, repeated or reordered; none when there were no events.
    integrity: Option<String>,
    pub(crate) remarks: Vec<Remark>,
}

pub(crate) struct Remark {
    pub(crate) weight: RemarkWeight,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemarkWeight {
    /// A promise was broken, or part of the comparison is missing.
    Bad,
    /// A reason to doubt the figures.
    Warning,
    /// Polling is better here.
    Note,
}

impl Verdict {
    pub(crate) fn of(report: &ComparisonReport) -> Verdict {
        let rates = report.by_rate();
        let pairs = rates.iter().filter_map(|at| Some((at.cdc()?, soonest(at)?)));
        let mut comparisons: Vec<String> =
            pairs.map(|(cdc, polling)| side_by_side(cdc, polling)).collect();
        if comparisons.is_empty() {
            comparisons.push(nothing_to_compare(report));
        }
        let mut remarks = Vec::new();
        if let Some(why) = &report.incomplete {
            let text = format!("This comparison is incomplete: {why}.");
            remarks.push(Remark { weight: RemarkWeight::Bad, text });
        }
        remarks.extend(losses(report, &rates));
        remarks.extend(polling_is_better(report, &rates));
        remarks.extend(doubts(report, &rates));
        Verdict { comparisons, integrity: integrity(report), remarks }
    }

    pub(crate) fn sentences(&self) -> impl Iterator<Item = &str> {
        self.comparisons.iter().chain(&self.integrity).map(String::as_str)
    }

    /// The comparison at the middle rate, and what became of the events.
    pub(crate) fn headline(&self) -> String {
        let comparison = middle(&self.comparisons).into_iter();
        comparison.chain(&self.integrity).map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

fn soonest<'a>(at: &RateGroup<'a>) -> Option<&'a Run> {
    let p50 = |run: &Run| run.latencies.p50_ms().unwrap_or(f64::INFINITY);
    at.polling().min_by(|a, b| p50(a).total_cmp(&p50(b)))
}

fn nothing_to_compare(report: &ComparisonReport) -> String {
    let has =
        |cdc: bool| report.runs.iter().any(|run| (run.result.mode == CaptureMode::Cdc) == cdc);
    let (start, absent) = match (has(true), has(false), report.drains.is_empty()) {
        (true, true, _) => {
            return "CDC and polling have no rate in common, so that there is nothing to set side \
                    by side."
                .to_owned();
        }
        (true, false, _) => ("Only CDC was measured", "polling"),
        (false, true, _) => ("Only polling was measured", "CDC"),
        (false, false, false) => return "Only backlogs were measured, and no latency.".to_owned(),
        (false, false, true) => return "Nothing was measured.".to_owned(),
    };
    let example = middle(&report.runs).and_then(|run| {
        let (p50, p99) = (run.latencies.p50_ms()?, run.latencies.p99_ms()?);
        let (p50, p99) = (numbers::ms(p50), numbers::ms(p99));
        Some(format!(": {} has a p50 of {p50} and a p99 of {p99}", named(run)))
    });
    let example = example.unwrap_or_default();
    format!("{start}{example}. Without {absent} there is nothing to compare.")
}

fn side_by_side(cdc: &Run, polling: &Run) -> String {
    let (at, other) = (numbers::rate(cdc.rate), polling.result.mode.long());
    for (run, name) in [(cdc, "the slot"), (polling, other.as_str())] {
        if run.latencies.micros().is_empty() {
            return format!("At {at} nothing arrived from {name}: there is nothing to compare.");
        }
    }
    let sooner =
        |share| ratio(polling.latencies.quantile_ms(share)?, cdc.latencies.quantile_ms(share)?);
    let (Some(p50), Some(p99)) = (sooner(0.5), sooner(0.99)) else {
        return format!("At {at} latencies are too small to be set side by side.");
    };
    use Ordering::{Equal, Greater, Less};
    let (by, slower_by) = (numbers::factor(p99), numbers::factor(1.0 / p99));
    let tail = match (to_one(p50), to_one(p99)) {
        (Equal, Equal) => String::new(),
        (_, Equal) => " (p99 alike)".to_owned(),
        (Greater, Greater) => format!(" (p99 {by})"),
        (Less, Less) => format!(" (p99 {slower_by})"),
        (_, Greater) => format!(" (but the slot's p99 is {by} shorter)"),
        (_, Less) => format!(" (but the slot's p99 is {slower_by} as long)"),
    };
    let start = match to_one(p50) {
        Greater => format!("the slot delivers {} sooner than {other}", numbers::factor(p50)),
        Less => format!("{other} delivers {} sooner than the slot", numbers::factor(1.0 / p50)),
        Equal => format!("the slot and {other} deliver equally soon"),
    };
    let cost = cpu(&cdc.result, &polling.result, to_one(p50).is_gt());
    format!("At {at} {start}{tail}{cost}")
}

/// The end of a sentence, which may have the slot as its subject: its share of polling's CPU time.
fn cpu(cdc: &RunResult, polling: &RunResult, is_about_slot: bool) -> String {
    let (Some(ours), Some(theirs)) = ((POSTGRES_CPU.of)(cdc), (POSTGRES_CPU.of)(polling)) else {
        return ". What either cost Postgres in CPU time is not known.".to_owned();
    };
    let Some(share) = ratio(ours, theirs) else {
        if ours == theirs {
            return ". Neither took Postgres any CPU time that could be seen.".to_owned();
        }
        let less = if ours > theirs { "polling" } else { "the slot" };
        return format!(". The Postgres CPU time of {less} is too little to be seen.");
    };
    let amount = match to_one(share) {
        Ordering::Less => numbers::percent(share),
        Ordering::Greater => numbers::factor(share),
        Ordering::Equal if is_about_slot => return " and takes as much Postgres CPU.".to_owned(),
        Ordering::Equal => return "; the slot takes as much Postgres CPU.".to_owned(),
    };
    match is_about_slot {
        true => format!(" and takes {amount} of its Postgres CPU."),
        false => format!("; the slot takes {amount} of polling's Postgres CPU."),
    }
}

/// Every run and drain in which events are missing, repeated or reordered.
fn losses(report: &ComparisonReport, rates: &[RateGroup<'_>]) -> Vec<Remark> {
    let runs = rates.iter().flat_map(|at| &at.runs).map(|run| (named(run), &run.result));
    let drains = report.drains_by_mode().into_iter().map(|drain| &drain.result);
    let drains =
        drains.map(|result| (format!("{}, draining a backlog", result.mode.long()), result));
    let remark = |(name, result): (String, &RunResult)| {
        let lost = result.losses.missing > 0 || result.losses.out_of_order > 0;
        let weight = if lost { RemarkWeight::Bad } else { RemarkWeight::Warning };
        let (name, events) = (numbers::capitalized(&name), numbers::count(result.events));
        let losses = result.losses.named(LOSSES);
        let text = format!("{name}: of {events} events, {}.", numbers::list(&losses));
        (!losses.is_empty()).then_some(Remark { weight, text })
    };
    runs.chain(drains).filter_map(remark).collect()
}

fn integrity(report: &ComparisonReport) -> Option<String> {
    let (mut measured, mut broken) = (0, Vec::new());
    for (name, is_cdc) in [("CDC", true), ("polling", false)] {
        let of_mode = |it: &&RunResult| (it.mode == CaptureMode::Cdc) == is_cdc;
        let results: Vec<&RunResult> = report.results().filter(of_mode).collect();
        let sum = |of: fn(&EventCounts) -> u64| results.iter().map(|it| of(&it.losses)).sum();
        let losses = EventCounts {
            missing: sum(|it| it.missing),
            duplicated: sum(|it| it.duplicated),
            out_of_order: sum(|it| it.out_of_order),
        };
        measured += usize::from(results.iter().any(|it| it.events > 0));
        let losses = losses.named(LOSSES);
        if !losses.is_empty() {
            broken.push(format!("of all events with {name}, {}", numbers::list(&losses)));
        }
    }
    if !broken.is_empty() {
        return Some(format!("But {}.", broken.join("; ")));
    }
    let end = if measured == 2 { " in either" } else { "" };
    let sentence =
        || format!("Nothing was lost, nothing came twice and nothing out of order{end}.");
    (measured > 0).then(sentence)
}

/// One remark for each measure in which polling is better, with the runs in which it is.
fn polling_is_better(report: &ComparisonReport, rates: &[RateGroup<'_>]) -> Vec<Remark> {
    let of_runs = |what: &str, of: &dyn Fn(&Run) -> Option<f64>, show: fn(f64) -> String| {
        let places = rates.iter().flat_map(|at| {
            at.polling().filter_map(move |run| {
                let place =
                    format!("at {} every {}", numbers::rate(at.rate), run.result.mode.short());
                smaller(&place, of(run), at.cdc().and_then(of), show)
            })
        });
        better(what, places.collect())
    };
    let drains = report.drains_by_mode();
    let of_drains = |what: &str, of: fn(&Drain) -> f64, show: fn(f64) -> String| {
        let of = |drain: &Drain| (drain.arrived() > 0).then(|| of(drain));
        let (cdc, polling): (Vec<&Drain>, Vec<&Drain>) =
            drains.iter().partition(|drain| drain.result.mode == CaptureMode::Cdc);
        let ours = cdc.first().and_then(|drain| of(drain));
        let place = |drain: &Drain| format!("every {}", drain.result.mode.short());
        let places = polling.iter().filter_map(|it| smaller(&place(it), of(it), ours, show));
        better(what, places.collect())
    };
    let quantile = |share| move |run: &Run| run.latencies.quantile_ms(share);
    let mut remarks = vec![
        of_runs("p50 latency", &quantile(0.5), numbers::ms),
        of_runs("p99 latency", &quantile(0.99), numbers::ms),
    ];
    for measure in POSTGRES.iter().chain(RELAY) {
        let what = format!("{} {}", measure.title, measure.unit);
        remarks.push(of_runs(&what, &|run| (measure.of)(&run.result), measure.show));
    }
    // The time per event is compared, so that less is better, and shown as events per second.
    let per_second = |time: f64| format!("{}/s", numbers::figure(1.0 / time));
    remarks.push(of_drains("the speed of a drain", |drain| 1.0 / drain.per_second(), per_second));
    remarks.push(of_drains("the time to the first event", |it| it.first_s, numbers::seconds));
    remarks.into_iter().flatten().collect()
}

/// The place and both values if polling's is smaller.
fn smaller(
    place: &str,
    theirs: Option<f64>,
    ours: Option<f64>,
    show: fn(f64) -> String,
) -> Option<String> {
    let (theirs, ours) = (theirs?, ours?);
    let is_smaller = ratio(theirs, ours).map_or(theirs < ours, |ratio| to_one(ratio).is_lt());
    is_smaller.then(|| format!("{place} ({} against {})", show(theirs), show(ours)))
}

fn better(what: &str, mut places: Vec<String>) -> Option<Remark> {
    match places.len().saturating_sub(NAMED_MAX) {
        0 => {}
        more => {
            places.truncate(NAMED_MAX);
            places.push(format!("in {more} more {}", if more == 1 { "place" } else { "places" }));
        }
    }
    let text = format!("Polling is better in {what}: {}.", numbers::list(&places));
    (!places.is_empty()).then_some(Remark { weight: RemarkWeight::Note, text })
}

/// Why the figures may be less exact than they look.
fn doubts(report: &ComparisonReport, rates: &[RateGroup<'_>]) -> Vec<Remark> {
    let (mut late, mut slow) = (Vec::new(), Vec::new());
    for run in rates.iter().flat_map(|at| &at.runs) {
        if run.load_late_p99_ms > LATE_MS {
            late.push(format!("{} (p99 {})", named(run), numbers::ms(run.load_late_p99_ms)));
        }
        if run.written_per_second < f64::from(run.rate) * WRITTEN_LEAST {
            slow.push(format!("{} ({}/s)", named(run), numbers::figure(run.written_per_second)));
        }
    }
    let mut texts = Vec::new();
    for (what, runs) in
        [("The load itself was late", late), ("Fewer events were written than asked for", slow)]
    {
        if !runs.is_empty() {
            let runs = numbers::list(&runs);
            texts.push(format!(
                "{what}: {runs}. The machine may be too small for this rate, and the latencies say \
                 little there."
            ));
        }
    }
    let machine = &report.machine;
    if machine.cores > 0 && machine.load_average > machine.cores as f64 {
        let (load, cores) = (numbers::figure(machine.load_average), machine.cores);
        texts.push(format!(
            "The machine was busy before the first run: a load average of {load} on {cores} cores."
        ));
    }
    texts.into_iter().map(|text| Remark { weight: RemarkWeight::Warning, text }).collect()
}

fn named(run: &Run) -> String {
    format!("{} at {}", run.result.mode.long(), numbers::rate(run.rate))
}

/// How a ratio compares with 1, when nearly equal values count as equal.
fn to_one(ratio: f64) -> Ordering {
    if (1.0 - ALIKE..=1.0 + ALIKE).contains(&ratio) {
        return Ordering::Equal;
    }
    ratio.total_cmp(&1.0)
}

/// None when one of the two is zero.
fn ratio(above: f64, below: f64) -> Option<f64> {
    (above > 0.0 && below > 0.0).then(|| above / below).filter(|ratio| ratio.is_finite())
}

fn middle<T>(items: &[T]) -> Option<&T> {
    items.get(items.len().saturating_sub(1) / 2)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

//! What the figures come to, in words, for the terminal and the page alike. It says what they say,
//! whether that speaks for the slot or for polling.

use super::measures::{POSTGRES, POSTGRES_CPU, RELAY};
use super::numbers;
use super::plan::CaptureMode;
use super::report::{ComparisonReport, Drain, EventCounts, RateGroup, Run, RunResult};

/// Values that differ by less are called alike.
const ALIKE: f64 = 0.05;
/// Places beyond this number are counted, not named.
const NAMED_MAX: usize = 3;
/// A load later than this was not as even as it should be.
const LATE_MS: f64 = 50.0;
/// A load that wrote a smaller share of what was asked for was too slow.
const WRITTEN_LEAST: f64 = 0.95;

/// The answer, and what must be known beside it.
pub(crate) struct Verdict {
    /// For each rate the slot beside the polling that is soonest; never empty.
    comparisons: Vec<String>,
    /// What became of all events; none when there were none.
    integrity: Option<String>,
    pub(crate) remarks: Vec<Remark>,
}

/// Something that a reader must not miss.
pub(crate) struct Remark {
    pub(crate) weight: RemarkWeight,
    pub(crate) text: String,
}

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemarkWeight {
    /// A promise was broken, or part of the comparison is not there.
    Bad,
    /// The figures are to be read with this in mind.
    Warning,
    /// Polling is better here.
    Note,
}

/// Where a ratio leans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lean {
    More,
    Less,
    Alike,
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
        let cut_short = report.incomplete.iter().map(|why| Remark {
            weight: RemarkWeight::Bad,
            text: format!("This comparison is incomplete: {why}."),
        });
        let mut remarks: Vec<Remark> = cut_short.collect();
        remarks.extend(losses(report));
        remarks.extend(polling_is_better(report, &rates));
        remarks.extend(doubts(report, &rates));
        Verdict { comparisons, integrity: integrity(report), remarks }
    }

    /// Every rate in a sentence, then what became of the events.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = &str> {
        self.comparisons.iter().chain(&self.integrity).map(String::as_str)
    }

    /// The rate in the middle speaks for all.
    pub(crate) fn headline(&self) -> String {
        let comparison = middle(&self.comparisons).into_iter();
        comparison.chain(&self.integrity).map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// The polling to which the slot must be held.
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
    let tail = match (lean(p50), lean(p99)) {
        (Lean::Alike, Lean::Alike) => String::new(),
        (_, Lean::Alike) => " (p99 alike)".to_owned(),
        (Lean::More, Lean::More) => format!(" (p99 {})", numbers::factor(p99)),
        (Lean::Less, Lean::Less) => format!(" (p99 {})", numbers::factor(1.0 / p99)),
        (_, Lean::More) => format!(" (but the slot's p99 is {} shorter)", numbers::factor(p99)),
        (_, Lean::Less) => {
            format!(" (but the slot's p99 is {} as long)", numbers::factor(1.0 / p99))
        }
    };
    let start = match lean(p50) {
        Lean::More => format!("the slot delivers {} sooner than {other}", numbers::factor(p50)),
        Lean::Less => {
            format!("{other} delivers {} sooner than the slot", numbers::factor(1.0 / p50))
        }
        Lean::Alike => format!("the slot and {other} deliver equally soon"),
    };
    let cost = cpu(&cdc.result, &polling.result, lean(p50) == Lean::More);
    format!("At {at} {start}{tail}{cost}")
}

/// How the sentence ends: the slot's share of polling's CPU time.
fn cpu(cdc: &RunResult, polling: &RunResult, about_the_slot: bool) -> String {
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
    let amount = match lean(share) {
        Lean::Less => numbers::percent(share),
        Lean::More => numbers::factor(share),
        Lean::Alike if about_the_slot => return " and takes as much Postgres CPU.".to_owned(),
        Lean::Alike => return "; the slot takes as much Postgres CPU.".to_owned(),
    };
    match about_the_slot {
        true => format!(" and takes {amount} of its Postgres CPU."),
        false => format!("; the slot takes {amount} of polling's Postgres CPU."),
    }
}

const LOSSES: [&str; 3] = ["missing", "delivered more than once", "out of order"];

/// Every run and drain in which events are missing, came twice or came out of their order.
fn losses(report: &ComparisonReport) -> Vec<Remark> {
    let rates = report.by_rate();
    let runs = rates.iter().flat_map(|at| &at.runs).map(|run| (named(run), &run.result));
    let drains = report.drains_by_mode().into_iter();
    let drains = drains
        .map(|drain| (format!("{}, draining a backlog", drain.result.mode.long()), &drain.result));
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

/// What became of all events, in a sentence.
fn integrity(report: &ComparisonReport) -> Option<String> {
    let of = |cdc: bool| {
        let mut sum = (0, EventCounts::default());
        for result in report.results().filter(|it| (it.mode == CaptureMode::Cdc) == cdc) {
            sum.0 += result.events;
            sum.1.missing += result.losses.missing;
            sum.1.duplicated += result.losses.duplicated;
            sum.1.out_of_order += result.losses.out_of_order;
        }
        sum
    };
    let ((cdc, cdc_losses), (polling, polling_losses)) = (of(true), of(false));
    let broken: Vec<String> = [("CDC", cdc_losses), ("polling", polling_losses)]
        .map(|(name, losses)| (name, losses.named(LOSSES)))
        .into_iter()
        .filter(|(_, losses)| !losses.is_empty())
        .map(|(name, losses)| format!("of all events with {name}, {}", numbers::list(&losses)))
        .collect();
    if !broken.is_empty() {
        return Some(format!("But {}.", broken.join("; ")));
    }
    let end = if cdc > 0 && polling > 0 { " in either" } else { "" };
    let sentence =
        || format!("Nothing was lost, nothing came twice and nothing out of order{end}.");
    (cdc > 0 || polling > 0).then(sentence)
}

/// Where polling is better: each measure once, with the runs in which it is.
fn polling_is_better(report: &ComparisonReport, rates: &[RateGroup<'_>]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut tell = |places: Vec<String>, what: &str| {
        if !places.is_empty() {
            let text = format!("Polling is better in {what}: {}.", some(places));
            remarks.push(Remark { weight: RemarkWeight::Note, text });
        }
    };
    let at_rates = |of: &dyn Fn(&Run) -> Option<f64>, show: fn(f64) -> String| -> Vec<String> {
        let places = rates.iter().flat_map(|at| {
            let place = |run: &Run| {
                format!("at {} every {}", numbers::rate(at.rate), run.result.mode.short())
            };
            let theirs = at.polling().map(|run| (place(run), of(run)));
            smaller(at.cdc().and_then(of), theirs, show)
        });
        places.collect()
    };
    for (share, what) in [(0.5, "p50 latency"), (0.99, "p99 latency")] {
        tell(at_rates(&|run| run.latencies.quantile_ms(share), numbers::ms), what);
    }
    for measure in POSTGRES.iter().chain(RELAY) {
        let places = at_rates(&|run| (measure.of)(&run.result), measure.show);
        tell(places, &format!("{} {}", measure.title, measure.unit));
    }
    let of_drains = |of: fn(&Drain) -> f64, show: fn(f64) -> String| {
        let of = |drain: &Drain| Some(of(drain)).filter(|_| drain.arrived() > 0);
        let drains = report.drains_by_mode();
        let (cdc, polling): (Vec<&Drain>, Vec<&Drain>) =
            drains.iter().partition(|drain| drain.result.mode == CaptureMode::Cdc);
        let place = |drain: &Drain| format!("every {}", drain.result.mode.short());
        let theirs = polling.into_iter().map(|drain| (place(drain), of(drain)));
        smaller(cdc.first().and_then(|drain| of(drain)), theirs, show)
    };
    // Less time for each event is better, and shown as more events in a second.
    let shown = |each: f64| format!("{}/s", numbers::figure(1.0 / each));
    tell(of_drains(|drain| 1.0 / drain.per_second(), shown), "the speed of a drain");
    tell(of_drains(|drain| drain.first_s, numbers::seconds), "the time to the first event");
    remarks
}

/// Polling's values that are smaller than the slot's by more than what is called alike: where, and
/// against what.
fn smaller(
    ours: Option<f64>,
    theirs: impl IntoIterator<Item = (String, Option<f64>)>,
    show: impl Fn(f64) -> String,
) -> Vec<String> {
    let Some(ours) = ours else { return Vec::new() };
    let better = theirs.into_iter().filter_map(|(place, theirs)| {
        let theirs = theirs?;
        let leans = ratio(theirs, ours).map_or(theirs < ours, |ratio| lean(ratio) == Lean::Less);
        leans.then(|| format!("{place} ({} against {})", show(theirs), show(ours)))
    });
    better.collect()
}

fn some(mut places: Vec<String>) -> String {
    let more = places.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        places.truncate(NAMED_MAX);
        let word = if more == 1 { "place" } else { "places" };
        places.push(format!("in {more} more {word}"));
    }
    numbers::list(&places)
}

/// Why the figures may say less than they seem to.
fn doubts(report: &ComparisonReport, rates: &[RateGroup<'_>]) -> Vec<Remark> {
    let runs = || rates.iter().flat_map(|at| &at.runs);
    let late = runs().filter(|run| run.load_late_p99_ms > LATE_MS);
    let late = late.map(|it| format!("{} (p99 {})", named(it), numbers::ms(it.load_late_p99_ms)));
    let short = runs().filter(|it| it.written_per_second < f64::from(it.rate) * WRITTEN_LEAST);
    let short =
        short.map(|it| format!("{} ({}/s)", named(it), numbers::figure(it.written_per_second)));
    let doubted = [
        ("The load itself was late", late.collect::<Vec<_>>()),
        ("Fewer events were written than asked for", short.collect()),
    ];
    let mut texts = Vec::new();
    for (what, runs) in doubted.iter().filter(|(_, runs)| !runs.is_empty()) {
        texts.push(format!(
            "{what}: {}. The machine may be too small for this rate, and the latencies say little \
             there.",
            numbers::list(runs)
        ));
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

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

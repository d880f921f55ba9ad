//! Where polling is the better one. Each measure is told once, with the places where it turns.

use crate::compare::report::{Drain, Mode, Report, Run};

use super::super::lineup::{AtRate, order, short};
use super::super::measure::{POSTGRES, RELAY};
use super::super::text;
use super::{Lean, Remark, Tone, lean};

/// More places are counted, not named.
const NAMED_MAX: usize = 3;

pub(super) fn all(report: &Report, rates: &[AtRate<'_>]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut tell = |places: Vec<String>, what: &str| {
        if !places.is_empty() {
            let text = format!("Polling is better in {what}: {}.", some(places));
            remarks.push(Remark { tone: Tone::Turn, text });
        }
    };
    for (share, what) in [(0.5, "p50 latency"), (0.99, "p99 latency")] {
        let latency = |run: &Run| (!run.latencies_us.is_empty()).then(|| run.quantile_ms(share));
        tell(at_rates(rates, latency, text::ms), what);
    }
    for measure in POSTGRES.iter().chain(RELAY) {
        tell(at_rates(rates, measure.of, measure.show), measure.noun);
    }
    let speed = |value: f64| format!("{}/s", text::figure(value));
    tell(of_drains(report, |drain| -drain.per_second(), speed), "the speed of a drain");
    tell(of_drains(report, |drain| drain.first_s, text::seconds), "the time to the first event");
    remarks
}

fn at_rates(
    rates: &[AtRate<'_>],
    of: impl Fn(&Run) -> Option<f64>,
    show: impl Fn(f64) -> String,
) -> Vec<String> {
    let mut places = Vec::new();
    for at in rates {
        let Some(ours) = at.cdc().and_then(&of) else { continue };
        for run in at.polling() {
            let Some(theirs) = of(run).filter(|theirs| smaller(*theirs, ours)) else { continue };
            let (rate, name) = (text::rate(at.rate), short(run.mode));
            let (theirs, ours) = (show(theirs), show(ours));
            places.push(format!("at {rate} every {name} ({theirs} against {ours})"));
        }
    }
    places
}

/// The smaller is the better; what is better when larger comes with a minus.
fn of_drains(report: &Report, of: fn(&Drain) -> f64, show: impl Fn(f64) -> String) -> Vec<String> {
    let whole = |drain: &&Drain| drain.events > drain.missing;
    let Some(cdc) = report.drains.iter().filter(whole).find(|drain| drain.mode == Mode::Cdc) else {
        return Vec::new();
    };
    let mut polling: Vec<&Drain> = report.drains.iter().filter(whole).collect();
    polling.sort_by_key(|drain| order(drain.mode));
    let better = polling.into_iter().filter(|drain| drain.mode != Mode::Cdc);
    let better = better.filter(|drain| smaller(of(drain), of(cdc)));
    better
        .map(|drain| {
            let (theirs, ours) = (show(of(drain).abs()), show(of(cdc).abs()));
            format!("every {} ({theirs} against {ours})", short(drain.mode))
        })
        .collect()
}

/// By more than what is called alike.
fn smaller(theirs: f64, ours: f64) -> bool {
    if theirs == 0.0 || ours == 0.0 || (theirs < 0.0) != (ours < 0.0) {
        return theirs < ours;
    }
    let ratio = theirs.abs() / ours.abs();
    lean(if ours < 0.0 { 1.0 / ratio } else { ratio }) == Lean::Less
}

fn some(mut places: Vec<String>) -> String {
    let more = places.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        places.truncate(NAMED_MAX);
        let word = if more == 1 { "place" } else { "places" };
        places.push(format!("in {more} more {word}"));
    }
    text::list(&places)
}

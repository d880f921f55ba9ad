//! Makes a failing schedule smaller as long as it fails.

use crate::options::Options;
use crate::world::Report;
use crate::{run, story};

/// The smallest schedule that was found, what it shows, and its story on a page.
#[derive(Clone, Debug)]
pub struct Shrunk {
    pub options: Options,
    pub what: String,
    pub page: Vec<String>,
}

/// None if this schedule does not fail.
#[must_use]
pub fn shrink(options: &Options) -> Option<Shrunk> {
    let mut smallest = options.clone();
    let mut fails = run(options, false);
    let kind = kind(&fails)?;
    let attempt = |smallest: &mut Options, fails: &mut Report, smaller: Options| {
        let report = run(&smaller, false);
        let is_same = self::kind(&report).is_some_and(|it| it == kind);
        if is_same {
            (*smallest, *fails) = (smaller, report);
        }
        is_same
    };
    // What is left out may make room for more.
    for _ in 0..3 {
        let before = smallest.clone();
        for relays in 1..fails.relays {
            if attempt(
                &mut smallest,
                &mut fails,
                Options { relays: Some(relays), ..before.clone() },
            ) {
                break;
            }
        }
        for events in fewer_events(fails.events) {
            let smaller = Options { events: Some(events), ..smallest.clone() };
            if !attempt(&mut smallest, &mut fails, smaller) {
                break;
            }
        }
        let mut index = 0;
        while index < fails.happened.len() {
            let mut kept: Vec<u32> = fails.happened.iter().map(|(fault, _)| *fault).collect();
            kept.remove(index);
            let smaller = Options { faults: Some(kept), ..smallest.clone() };
            if !attempt(&mut smallest, &mut fails, smaller) {
                index += 1;
            }
        }
        if smallest == before {
            break;
        }
    }
    let report = run(&smallest, true);
    let violation = report.violation?;
    let page = story::page(&report.story, &violation, &report.keys);
    Some(Shrunk { options: smallest, what: violation.what, page })
}

/// The same kind of violation, not another one of a smaller schedule.
fn kind(report: &Report) -> Option<String> {
    let violation = report.violation.as_ref()?;
    Some(violation.what.split([':', ' ']).next().unwrap_or_default().to_owned())
}

/// Halves first, then steps.
fn fewer_events(events: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(events * 3 / 4), |last| Some(last * 3 / 4)).take_while(|it| *it > 1)
}

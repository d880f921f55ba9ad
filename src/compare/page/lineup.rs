//! Who takes part: the modes in a fixed order, each with its look, and the runs sorted by rate.

use crate::compare::report::{Mode, Report, Run};

use super::text;

/// Looks of the polling intervals, from the shortest to the longest: a ramp of one colour. Each has
/// a line style of its own, so that none is told by colour alone.
const RAMP: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];

/// All modes of a report: the slot first, then polling from the shortest interval.
pub(super) struct Lineup {
    modes: Vec<Mode>,
}

impl Lineup {
    pub(super) fn of(report: &Report) -> Lineup {
        let runs = report.runs.iter().map(|run| run.mode);
        let mut modes: Vec<Mode> = runs.chain(report.drains.iter().map(|d| d.mode)).collect();
        modes.sort_by_key(|mode| order(*mode));
        modes.dedup();
        Lineup { modes }
    }

    pub(super) fn modes(&self) -> impl Iterator<Item = Mode> {
        self.modes.iter().copied()
    }

    /// The class that gives a mode its colour and its line.
    pub(super) fn look(&self, mode: Mode) -> &'static str {
        if mode == Mode::Cdc {
            return "cdc";
        }
        let intervals: Vec<Mode> = self.modes().filter(|mode| *mode != Mode::Cdc).collect();
        let at = intervals.iter().position(|other| *other == mode).unwrap_or(0);
        let gaps = intervals.len().saturating_sub(1);
        // Few intervals are spread over the ramp, many share its steps.
        let step = (at * (RAMP.len() - 1) + gaps / 2).checked_div(gaps).unwrap_or(RAMP.len() / 2);
        RAMP.get(step).copied().unwrap_or_default()
    }
}

/// The slot first, then the shortest interval.
pub(super) fn order(mode: Mode) -> u64 {
    match mode {
        Mode::Cdc => 0,
        Mode::Polling { interval_ms } => interval_ms.saturating_add(1),
    }
}

/// `CDC`, `500 ms`: beside a line.
pub(super) fn short(mode: Mode) -> String {
    match mode {
        Mode::Cdc => "CDC".to_owned(),
        Mode::Polling { interval_ms } => text::ms(interval_ms as f64),
    }
}

/// `CDC`, `polling 500 ms`: in a table.
pub(super) fn name(mode: Mode) -> String {
    match mode {
        Mode::Cdc => "CDC".to_owned(),
        Mode::Polling { .. } => format!("polling {}", short(mode)),
    }
}

/// `CDC`, `polling every 500 ms`: in a sentence.
pub(super) fn long(mode: Mode) -> String {
    match mode {
        Mode::Cdc => "CDC".to_owned(),
        Mode::Polling { .. } => format!("polling every {}", short(mode)),
    }
}

/// The runs of one rate.
pub(super) struct AtRate<'a> {
    pub(super) rate: u32,
    pub(super) runs: Vec<&'a Run>,
}

impl<'a> AtRate<'a> {
    /// The slot's run at this rate.
    pub(super) fn cdc(&self) -> Option<&'a Run> {
        self.runs.iter().copied().find(|run| run.mode == Mode::Cdc)
    }

    /// Polling at this rate, the shortest interval first.
    pub(super) fn polling(&self) -> Vec<&'a Run> {
        self.runs.iter().copied().filter(|run| run.mode != Mode::Cdc).collect()
    }
}

/// All runs, by rate, and within it in the order of the modes.
pub(super) fn by_rate(report: &Report) -> Vec<AtRate<'_>> {
    let mut runs: Vec<&Run> = report.runs.iter().collect();
    runs.sort_by_key(|run| (run.rate, order(run.mode)));
    let same = |a: &&Run, b: &&Run| a.rate == b.rate;
    let groups = runs.chunk_by(same);
    groups.map(|runs| AtRate { rate: runs[0].rate, runs: runs.to_vec() }).collect()
}

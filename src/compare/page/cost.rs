//! What each mode cost: Postgres first, then the relay, one figure for each measure.

use super::bars::{self, Group};
use super::lineup::{AtRate, Lineup};
use super::measure::{Measure, POSTGRES, RELAY};
use super::{plot, text};

pub(super) fn postgres(rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    section(POSTGRES, rates, lineup)
}

pub(super) fn relay(rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    section(RELAY, rates, lineup)
}

fn section(measures: &[Measure], rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    let figures: Vec<String> =
        measures.iter().map(|measure| figure(measure, rates, lineup)).collect();
    plot::grid(&figures)
}

fn figure(measure: &Measure, rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    let groups: Vec<Group> = rates
        .iter()
        .map(|at| Group {
            heading: text::rate(at.rate),
            bars: at.runs.iter().map(|run| (run.mode, (measure.of)(run))).collect(),
        })
        .collect();
    let label = format!("{} {}, by mode and rate", measure.title, measure.unit);
    let drawing = bars::drawing(&groups, lineup, &label, measure.show);
    plot::figure(measure.title, measure.unit, &drawing)
}

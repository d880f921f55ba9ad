//! Horizontal bars in groups. Each says its value, so that there is no axis to read it from; a bar
//! of zero says 0, and one that is not known says so.

use crate::compare::report::Mode;

use super::lineup::{Lineup, short};
use super::plot;
use super::scale::Scale;
use super::svg::{Anchor, Svg};

const LEFT: f64 = 52.0;
/// Behind the longest bar there must be room for its value.
const RIGHT: f64 = 292.0;
const BAR: f64 = 11.0;
const ROW: f64 = 15.0;
const HEAD: f64 = 16.0;
const BETWEEN: f64 = 7.0;

/// Bars under one heading, which may be empty.
pub(super) struct Group {
    pub(super) heading: String,
    pub(super) bars: Vec<(Mode, Option<f64>)>,
}

pub(super) fn drawing(
    groups: &[Group],
    lineup: &Lineup,
    label: &str,
    show: impl Fn(f64) -> String,
) -> String {
    let head = |group: &Group| if group.heading.is_empty() { 0.0 } else { HEAD };
    let room = |group: &Group| head(group) + group.bars.len() as f64 * ROW + BETWEEN;
    let height = groups.iter().map(room).sum::<f64>().max(ROW);
    let values = groups.iter().flat_map(|group| &group.bars).filter_map(|(_, value)| *value);
    let x = Scale::linear(values.fold(0.0, f64::max), (LEFT, RIGHT));
    let mut svg = Svg::new(plot::WIDTH, height, label);
    let mut y = 0.0;
    for group in groups {
        if head(group) > 0.0 {
            svg.word((0.0, y + 11.0), Anchor::Start, "head", &group.heading);
        }
        let top = y + head(group);
        for (at, (mode, value)) in group.bars.iter().enumerate() {
            bar(
                &mut svg,
                top + at as f64 * ROW,
                &x,
                (short(*mode), lineup.look(*mode)),
                *value,
                &show,
            );
        }
        let bottom = top + group.bars.len() as f64 * ROW;
        svg.line((LEFT, top), (LEFT, bottom - ROW + BAR), "axis");
        y += room(group);
    }
    svg.finish()
}

fn bar(
    svg: &mut Svg,
    y: f64,
    x: &Scale,
    (name, look): (String, &str),
    value: Option<f64>,
    show: impl Fn(f64) -> String,
) {
    svg.word((LEFT - 6.0, y + 9.5), Anchor::End, &format!("label {look}"), &name);
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return svg.word((LEFT + 6.0, y + 9.5), Anchor::Start, "unknown", "not known");
    };
    // Little is not nothing: it is as wide as a hair at least.
    let least = if value > 0.0 { 1.0 } else { 0.0 };
    let length = (x.at(value) - LEFT).max(least);
    if length > 0.0 {
        svg.bar((LEFT, y), (length, BAR), &format!("fill {look}"));
    }
    let word = if value > 0.0 { show(value) } else { "0".to_owned() };
    svg.word((LEFT + length + 5.0, y + 9.5), Anchor::Start, "value", &word);
}

//! What all plots are drawn with: scales, axes, and the little of SVG that they need. Looks are
//! classes, so that light, dark and paper share one drawing.
//!
//! Plot libraries write colours into the drawing and dashes as pieces: one drawing would not do for
//! light, dark and paper, and would be thirty times as long.

use maud::{Markup, html};

/// Width of a drawing; the page shows it at about this many pixels.
pub(super) const WIDTH: f64 = 360.0;
/// Width of a letter, near enough to keep labels apart.
const LETTER: f64 = 6.7;
/// Words of an axis are no nearer to each other.
const TICK_HEIGHT: f64 = 11.0;
/// The smallest value of a logarithmic scale: a hundredth of a millisecond.
const LOG_FLOOR: f64 = 0.01;
/// The largest value of any scale. Nothing measured comes near it; it keeps sums finite.
const CEILING: f64 = 1e12;
/// Values this near to a tick or an edge are on it.
const NEAR: f64 = 1e-9;

/// A drawing; `label` is what somebody hears who does not see it.
pub(super) fn svg(height: f64, label: &str, parts: &[Markup]) -> Markup {
    html! {
        svg viewBox={ "0 0 " (place(WIDTH)) " " (place(height)) } role="img" aria-label=(label) {
            @for part in parts { (part) }
        }
    }
}

pub(super) fn line(from: (f64, f64), to: (f64, f64), class: &str) -> Markup {
    path(&way(&[from, to]), class)
}

pub(super) fn path(way: &str, class: &str) -> Markup {
    html! { path class=(class) d=(way) {} }
}

pub(super) fn bar((x, y): (f64, f64), (width, height): (f64, f64), class: &str) -> Markup {
    let size = (place(width.max(0.0)), place(height.max(0.0)));
    html! { rect class=(class) x=(place(x)) y=(place(y)) width=(size.0) height=(size.1) {} }
}

/// A text whose `anchor` (start, middle, end) stands at its place.
pub(super) fn word((x, y): (f64, f64), anchor: &str, class: &str, text: &str) -> Markup {
    html! { text class=(class) x=(place(x)) y=(place(y)) text-anchor=(anchor) { (text) } }
}

/// A point with its value, which shows when it is pointed at.
pub(super) fn dot((x, y): (f64, f64), class: &str, value: &str) -> Markup {
    html! { circle class=(class) cx=(place(x)) cy=(place(y)) r="2.8" { title { (value) } } }
}

/// Straight from point to point.
pub(super) fn way(points: &[(f64, f64)]) -> String {
    let step = |(at, (x, y)): (usize, &(f64, f64))| {
        format!("{}{} {}", if at == 0 { 'M' } else { 'L' }, place(*x), place(*y))
    };
    points.iter().enumerate().map(step).collect()
}

/// A tenth of a unit is less than a dot of ink.
pub(super) fn place(value: f64) -> String {
    // `-0` is a number, and looks like a mistake.
    format!("{}", (value * 10.0).round() / 10.0 + 0.0)
}

/// The part of a drawing that belongs to the data.
#[derive(Clone, Copy)]
pub(super) struct PlotArea {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl PlotArea {
    pub(super) fn across(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    /// Values grow upwards, places downwards.
    pub(super) fn upwards(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }

    /// Lines up and down, with their values below.
    pub(super) fn axis_x(&self, scale: &Scale, name: impl Fn(f64) -> String) -> Vec<Markup> {
        let mut parts = Vec::new();
        let mut free_from = f64::NEG_INFINITY;
        for (value, major) in scale.ticks() {
            let x = scale.at(value);
            parts.push(line((x, self.top), (x, self.bottom), grid(major)));
            let text = name(value);
            let half = width(&text) / 2.0;
            // Where they would touch, the next one stays without a word.
            if major && x - half > free_from {
                parts.push(word((x, self.bottom + 14.0), "middle", "tick", &text));
                free_from = x + half + 4.0;
            }
        }
        parts.push(line((self.left, self.bottom), (self.right, self.bottom), "axis"));
        parts
    }

    /// Lines across, with their values on the left.
    pub(super) fn axis_y(&self, scale: &Scale, name: impl Fn(f64) -> String) -> Vec<Markup> {
        let mut parts = Vec::new();
        let mut free_below = f64::INFINITY;
        for (value, major) in scale.ticks() {
            let y = scale.at(value);
            parts.push(line((self.left, y), (self.right, y), grid(major)));
            if major && y < free_below {
                free_below = y - TICK_HEIGHT;
                parts.push(word((self.left - 5.0, y + 3.5), "end", "tick", &name(value)));
            }
        }
        parts
    }
}

fn grid(major: bool) -> &'static str {
    if major { "grid" } else { "grid minor" }
}

/// How wide a word will be, roughly.
pub(super) fn width(word: &str) -> f64 {
    word.chars().count() as f64 * LETTER
}

/// Places in which nothing covers its neighbour, as near as this lets them be to where each wants its
/// middle, with the room that it needs, between `low` and `high` as long as there is room for all.
pub(super) fn apart(wishes: &[(f64, f64)], low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*a].0.total_cmp(&wishes[*b].0));
    let mut places = vec![0.0; wishes.len()];
    let mut least = low;
    for at in &order {
        let (middle, room) = wishes[*at];
        places[*at] = middle.max(least + room / 2.0);
        least = places[*at] + room / 2.0;
    }
    let mut most = high;
    for at in order.iter().rev() {
        let half = wishes[*at].1 / 2.0;
        places[*at] = places[*at].min(most - half);
        most = places[*at] - half;
    }
    places
}

/// From a value between `low` and `high` to a place between `from` and `to`. Whatever comes in, a
/// finite place comes out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ScaleKind {
    Linear,
    /// Equal factors are equally far apart.
    Log,
    /// Logarithmic, with a place for zero: for counts.
    Count,
}

impl Scale {
    /// From zero to `high`.
    pub(super) fn linear(high: f64, (from, to): (f64, f64)) -> Scale {
        let high = if high > 0.0 { high.clamp(1e-12, CEILING) } else { 1.0 };
        Scale { kind: ScaleKind::Linear, low: 0.0, high, from, to }
    }

    /// Over all of these values, rounded outwards, and over a decade at least.
    pub(super) fn log(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Scale {
        let usable =
            values.filter(|value| value.is_finite()).map(|value| value.clamp(LOG_FLOOR, CEILING));
        let (low, high) = usable
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let low = if low.is_finite() { round_down(low) } else { 1.0 };
        let high = round_up(high.max(low * 10.0));
        Scale { kind: ScaleKind::Log, low, high, from, to }
    }

    /// Counts from zero to `high`, rounded up.
    pub(super) fn count(high: f64, (from, to): (f64, f64)) -> Scale {
        let high = if high > 1.0 { high.min(CEILING) } else { 1.0 };
        Scale { kind: ScaleKind::Count, low: 0.0, high: round_up(high), from, to }
    }

    /// The place of a value; what lies outside is moved to the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = match self.kind {
            ScaleKind::Linear => value / self.high,
            ScaleKind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
            ScaleKind::Count => value.ln_1p() / self.high.ln_1p(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values between both ends, where an axis has a line; only the major ones say their value.
    pub(super) fn ticks(&self) -> Vec<(f64, bool)> {
        match self.kind {
            ScaleKind::Linear => {
                let step = round_up(self.high / 5.0);
                let steps = (self.high / step + NEAR) as u32;
                (0..=steps).map(|n| (f64::from(n) * step, true)).collect()
            }
            ScaleKind::Log => {
                // One decade alone would leave an axis with a single word on it.
                let wide = self.high / self.low > 101.0;
                let inside = self.low * (1.0 - NEAR)..=self.high * (1.0 + NEAR);
                decades(self.low, self.high)
                    .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| (decade, digit)))
                    .map(|(decade, digit)| (decade * digit, !wide || digit < 1.5))
                    .filter(|(value, _)| inside.contains(value))
                    .collect()
            }
            ScaleKind::Count => {
                let all = std::iter::once(0.0).chain(decades(1.0, self.high));
                all.map(|value| (value, true)).collect()
            }
        }
    }
}

/// The powers of ten from the one at or below `low` up to `high`.
fn decades(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let first = (low.log10() + NEAR).floor() as i32;
    let last = (high.log10() + NEAR).floor() as i32;
    (first..=last).map(|exponent| 10_f64.powi(exponent))
}

/// The largest of 1, 2, 5 times a power of ten that is not above; for positive values.
fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = [5.0, 2.0].into_iter().find(|digit| decade * digit <= value * (1.0 + NEAR));
    decade * digit.unwrap_or(1.0)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below; for positive values.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| decade * digit >= value * (1.0 - NEAR));
    decade * digit.unwrap_or(10.0)
}

#[cfg(test)]
#[path = "drawing_tests.rs"]
mod tests;

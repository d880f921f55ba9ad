//! Scales, axes and SVG elements of all plots. Colours are CSS classes, so that one drawing serves
//! light, dark and printed pages; plot libraries write the colours into the drawing.

use maud::{Markup, html};

/// Width of a drawing, about one pixel of the page per unit.
pub(super) const WIDTH: f64 = 360.0;
/// About the width of a letter.
const LETTER: f64 = 6.7;
/// Least distance between two labels of a vertical axis.
const TICK_HEIGHT: f64 = 11.0;
/// The smallest value of a logarithmic scale, in milliseconds.
const LOG_FLOOR: f64 = 0.01;
/// The largest value of any scale, so that all coordinates are finite.
const CEILING: f64 = 1e12;
/// Relative rounding error that is tolerated at ticks and edges.
const NEAR: f64 = 1e-9;

/// A drawing; `label` is for screen readers.
pub(super) fn svg(height: f64, label: &str, parts: &[Markup]) -> Markup {
    html! {
        svg viewBox={ "0 0 " (place(WIDTH)) " " (place(height)) } role="img" aria-label=(label) {
            @for part in parts { (part) }
        }
    }
}

pub(super) fn line(from: (f64, f64), to: (f64, f64), class: &str) -> Markup {
    path(&polyline(&[from, to]), class)
}

pub(super) fn path(data: &str, class: &str) -> Markup {
    html! { path class=(class) d=(data) {} }
}

pub(super) fn bar((x, y): (f64, f64), (width, height): (f64, f64), class: &str) -> Markup {
    let size = (place(width.max(0.0)), place(height.max(0.0)));
    html! { rect class=(class) x=(place(x)) y=(place(y)) width=(size.0) height=(size.1) {} }
}

/// A text with its `anchor` (start, middle, end) at this point.
pub(super) fn label((x, y): (f64, f64), anchor: &str, class: &str, text: &str) -> Markup {
    html! { text class=(class) x=(place(x)) y=(place(y)) text-anchor=(anchor) { (text) } }
}

/// A point with its value as a tooltip.
pub(super) fn dot((x, y): (f64, f64), class: &str, value: &str) -> Markup {
    html! { circle class=(class) cx=(place(x)) cy=(place(y)) r="2.8" { title { (value) } } }
}

/// Path data of straight lines from point to point.
pub(super) fn polyline(points: &[(f64, f64)]) -> String {
    let step = |(at, (x, y)): (usize, &(f64, f64))| {
        format!("{}{} {}", if at == 0 { 'M' } else { 'L' }, place(*x), place(*y))
    };
    points.iter().enumerate().map(step).collect()
}

/// A coordinate with one decimal.
pub(super) fn place(value: f64) -> String {
    // Adding zero turns -0 into 0.
    format!("{}", (value * 10.0).round() / 10.0 + 0.0)
}

/// The part of a drawing between the axes.
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

    /// From the lowest to the highest value: coordinates grow downwards.
    pub(super) fn upwards(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }

    /// Vertical grid lines, with their values below.
    pub(super) fn axis_x(&self, scale: &Scale, name: impl Fn(f64) -> String) -> Vec<Markup> {
        let mut parts = Vec::new();
        let mut free_from = f64::NEG_INFINITY;
        for (value, major) in scale.ticks() {
            let x = scale.at(value);
            parts.push(line((x, self.top), (x, self.bottom), grid(major)));
            let text = name(value);
            let half = width(&text) / 2.0;
            // A label that would touch the one before is left out.
            if major && x - half > free_from {
                parts.push(label((x, self.bottom + 14.0), "middle", "tick", &text));
                free_from = x + half + 4.0;
            }
        }
        parts.push(line((self.left, self.bottom), (self.right, self.bottom), "axis"));
        parts
    }

    /// Horizontal grid lines, with their values on the left.
    pub(super) fn axis_y(&self, scale: &Scale, name: impl Fn(f64) -> String) -> Vec<Markup> {
        let mut parts = Vec::new();
        let mut free_below = f64::INFINITY;
        for (value, major) in scale.ticks() {
            let y = scale.at(value);
            parts.push(line((self.left, y), (self.right, y), grid(major)));
            if major && y < free_below {
                free_below = y - TICK_HEIGHT;
                parts.push(label((self.left - 5.0, y + 3.5), "end", "tick", &name(value)));
            }
        }
        parts
    }
}

fn grid(major: bool) -> &'static str {
    if major { "grid" } else { "grid minor" }
}

/// About the width of a text.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Places labels so that they do not overlap, each as near to its wished middle as possible,
/// between `low` and `high` as long as there is room. A wish is the middle and the size of a label.
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

/// Maps values from `low` to `high` onto coordinates
/// from `from` to `to`. The result is always finite.
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
    Log,
    /// The logarithm of the value plus one: logarithmic with a place for zero.
    Count,
}

impl Scale {
    /// From zero to `high`.
    pub(super) fn linear(high: f64, (from, to): (f64, f64)) -> Scale {
        let high = if high > 0.0 { high.clamp(1e-12, CEILING) } else { 1.0 };
        Scale { kind: ScaleKind::Linear, low: 0.0, high, from, to }
    }

    /// Over all of these values, rounded outwards, and at least over a decade.
    pub(super) fn log(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Scale {
        let finite = values.filter(|it| it.is_finite()).map(|it| it.clamp(LOG_FLOOR, CEILING));
        let (low, high) =
            finite.fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        let low = if low.is_finite() { round_down(low) } else { 1.0 };
        let high = round_up(high.max(low * 10.0));
        Scale { kind: ScaleKind::Log, low, high, from, to }
    }

    /// Counts from zero to `high`, rounded up.
    pub(super) fn count(high: f64, (from, to): (f64, f64)) -> Scale {
        let high = if high > 1.0 { high.min(CEILING) } else { 1.0 };
        Scale { kind: ScaleKind::Count, low: 0.0, high: round_up(high), from, to }
    }

    /// The coordinate of a value; values outside the scale are moved to its edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = match self.kind {
            ScaleKind::Linear => value / self.high,
            ScaleKind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
            ScaleKind::Count => value.ln_1p() / self.high.ln_1p(),
        };
        self.from + share * (self.to - self.from)
    }

    /// The round values of the scale, which have grid lines; only the major ones have labels.
    pub(super) fn ticks(&self) -> Vec<(f64, bool)> {
        match self.kind {
            ScaleKind::Linear => {
                let step = round_up(self.high / 5.0);
                let steps = (self.high / step + NEAR) as u32;
                (0..=steps).map(|n| (f64::from(n) * step, true)).collect()
            }
            ScaleKind::Log => {
                // A narrow scale needs labels between its decades.
                let wide = self.high / self.low > 101.0;
                let inside = self.low * (1.0 - NEAR)..=self.high * (1.0 + NEAR);
                decades(self.low, self.high)
                    .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| (decade, digit)))
                    .map(|(decade, digit)| (decade * digit, !wide || digit < 1.5))
                    .filter(|(value, _)| inside.contains(value))
                    .collect()
            }
            ScaleKind::Count => {
                [0.0].into_iter().chain(decades(1.0, self.high)).map(|it| (it, true)).collect()
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

/// The largest of 1, 2, 5 times a power of ten that is not greater; for positive values.
fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = [5.0, 2.0].into_iter().find(|digit| decade * digit <= value * (1.0 + NEAR));
    decade * digit.unwrap_or(1.0)
}

/// The smallest of 1, 2, 5 times a power of ten that is not less; for positive values.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| decade * digit >= value * (1.0 - NEAR));
    decade * digit.unwrap_or(10.0)
}

#[cfg(test)]
#[path = "drawing_tests.rs"]
mod tests;

//! What all plots share: a frame with two axes, labels that do not cover each other, a legend, and
//! the figure around a drawing.

use crate::base::html::escape;
use crate::compare::report::Mode;

use super::lineup::{Lineup, name, short};
use super::scale::Scale;
use super::svg::{Anchor, Svg};

/// Width of a drawing; the page shows it at about this many pixels.
pub(super) const WIDTH: f64 = 360.0;

/// Width of a letter, near enough to keep labels apart.
const LETTER: f64 = 6.7;

/// Words of an axis are no nearer to each other.
const TICK_HEIGHT: f64 = 11.0;

/// The part of a drawing that belongs to the data.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn across(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    /// Values grow upwards, places downwards.
    pub(super) fn upwards(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }
}

/// Lines up and down, with their values below.
pub(super) fn axis_x(svg: &mut Svg, area: &Area, scale: &Scale, name: impl Fn(f64) -> String) {
    let mut free_from = f64::NEG_INFINITY;
    for tick in scale.ticks() {
        let x = scale.at(tick.value);
        svg.line((x, area.top), (x, area.bottom), if tick.major { "grid" } else { "grid minor" });
        let word = name(tick.value);
        let half = width(&word) / 2.0;
        // Where they would touch, the next one stays without a word.
        if tick.major && x - half > free_from {
            svg.word((x, area.bottom + 14.0), Anchor::Middle, "tick", &word);
            free_from = x + half + 4.0;
        }
    }
    svg.line((area.left, area.bottom), (area.right, area.bottom), "axis");
}

/// Lines across, with their values on the left.
pub(super) fn axis_y(svg: &mut Svg, area: &Area, scale: &Scale, name: impl Fn(f64) -> String) {
    let mut free_below = f64::INFINITY;
    for tick in scale.ticks() {
        let y = scale.at(tick.value);
        svg.line((area.left, y), (area.right, y), if tick.major { "grid" } else { "grid minor" });
        if tick.major && y < free_below {
            free_below = y - TICK_HEIGHT;
            svg.word((area.left - 5.0, y + 3.5), Anchor::End, "tick", &name(tick.value));
        }
    }
}

/// How wide a word will be, roughly.
pub(super) fn width(word: &str) -> f64 {
    word.chars().count() as f64 * LETTER
}

/// Something that wants to be in the middle of a place, and needs room around it.
pub(super) struct Wish {
    pub(super) at: f64,
    pub(super) room: f64,
}

/// Places in which nothing covers its neighbour, as near to the wishes as this lets them be, between
/// `low` and `high` as long as there is room for all.
pub(super) fn apart(wishes: &[Wish], low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*a].at.total_cmp(&wishes[*b].at));
    let mut places = vec![0.0; wishes.len()];
    let mut least = low;
    for at in &order {
        let half = wishes[*at].room / 2.0;
        places[*at] = wishes[*at].at.max(least + half);
        least = places[*at] + half;
    }
    let mut most = high;
    for at in order.iter().rev() {
        let half = wishes[*at].room / 2.0;
        places[*at] = places[*at].min(most - half);
        most = places[*at] - half;
    }
    places
}

/// A drawing with its title; `note` says what the drawing cannot.
pub(super) fn figure(title: &str, note: &str, drawing: &str) -> String {
    let (title, note) = (escape(title), escape(note));
    let note = if note.is_empty() { note } else { format!(" <span>{note}</span>") };
    format!("<figure>\n<figcaption>{title}{note}</figcaption>\n{drawing}</figure>\n")
}

/// Drawings beside each other, as many as there is room for.
pub(super) fn grid(figures: &[String]) -> String {
    format!("<div class=\"grid\">\n{}</div>\n", figures.concat())
}

/// Which line is which.
pub(super) fn legend(lineup: &Lineup) -> String {
    let mut html = "<p class=\"legend\">".to_owned();
    for mode in lineup.modes() {
        let (sample, word) = (sample(lineup.look(mode)), escape(&name(mode)));
        html.push_str(&format!("<span>{sample}{word}</span> "));
    }
    html.push_str("</p>\n");
    html
}

/// A piece of a mode's line.
pub(super) fn sample(look: &str) -> String {
    format!(
        "<svg class=\"sample\" viewBox=\"0 0 30 8\" aria-hidden=\"true\"><path class=\"curve {look}\" d=\"M2 4H28\"/></svg>"
    )
}

/// Names of lines at their right ends.
pub(super) fn end_labels(svg: &mut Svg, area: &Area, lineup: &Lineup, ends: &[(Mode, f64)]) {
    let wishes: Vec<Wish> = ends.iter().map(|(_, y)| Wish { at: *y, room: 12.0 }).collect();
    let places = apart(&wishes, area.top - 6.0, area.bottom + 6.0);
    for ((mode, _), y) in ends.iter().zip(places) {
        let class = format!("label {}", lineup.look(*mode));
        svg.word((area.right + 5.0, y + 3.5), Anchor::Start, &class, &short(*mode));
    }
}

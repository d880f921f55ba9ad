//! The little of SVG that the plots need. Looks are classes, so that light, dark and paper share one
//! drawing.

use crate::base::html::escape;

/// A drawing.
pub(super) struct Svg {
    text: String,
}

/// Where a text stands against its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// `label` is what somebody hears who does not see it.
    pub(super) fn new(width: f64, height: f64, label: &str) -> Svg {
        let (width, height, label) = (coordinate(width), coordinate(height), escape(label));
        let text =
            format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n");
        Svg { text }
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let mut path = Path::default();
        path.go(from);
        path.go(to);
        self.path(&path, class);
    }

    pub(super) fn path(&mut self, path: &Path, class: &str) {
        self.text.push_str(&format!("<path class=\"{class}\" d=\"{}\"/>\n", path.text));
    }

    /// A point with its value, which shows when it is pointed at.
    pub(super) fn dot(&mut self, (x, y): (f64, f64), class: &str, value: &str) {
        let (x, y, value) = (coordinate(x), coordinate(y), escape(value));
        self.text.push_str(&format!(
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"2.8\"><title>{value}</title></circle>\n"
        ));
    }

    pub(super) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let (x, y) = (coordinate(x), coordinate(y));
        let (width, height) = (coordinate(width.max(0.0)), coordinate(height.max(0.0)));
        self.text.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>\n"
        ));
    }

    pub(super) fn word(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, word: &str) {
        let (x, y, word) = (coordinate(x), coordinate(y), escape(word));
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.text.push_str(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{word}</text>\n"
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// A line through places.
#[derive(Default)]
pub(super) struct Path {
    text: String,
}

impl Path {
    /// Straight on; the first place is where it begins.
    pub(super) fn go(&mut self, (x, y): (f64, f64)) {
        let command = if self.text.is_empty() { 'M' } else { 'L' };
        self.text.push_str(&format!("{command}{} {}", coordinate(x), coordinate(y)));
    }

    /// First across, then up or down.
    pub(super) fn step(&mut self, (x, y): (f64, f64)) {
        self.text.push_str(&format!("H{}V{}", coordinate(x), coordinate(y)));
    }
}

/// A tenth of a unit is less than a dot of ink.
fn coordinate(value: f64) -> String {
    // `-0` is a number, and looks like a mistake.
    format!("{}", (value * 10.0).round() / 10.0 + 0.0)
}

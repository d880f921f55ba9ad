//! The spans of one trace as lines over time, from all processes that took part. The relay's own span is
//! the root of another trace, with a link to this one: see docs/tracing.md.

use crate::collector::{ResourceSpans, Span, attribute};
use walrelay_measure::numbers;

const WIDTH: usize = 48;
const BAR: char = '█';

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) service: String,
    pub(super) name: String,
    /// The outcome of the message, for the spans of relay and consumers.
    pub(super) outcome: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// In the order of their start.
pub(super) fn lines(resources: &[ResourceSpans], trace: &[u8; 16]) -> Vec<Line> {
    let mut lines = Vec::new();
    for resource in resources {
        let attributes = resource.resource.as_ref().map(|it| it.attributes.as_slice());
        let service = attribute(attributes.unwrap_or_default(), "service.name").unwrap_or_default();
        let spans = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
        let belongs = |span: &&Span| {
            span.trace_id == trace || span.links.iter().any(|link| link.trace_id == trace)
        };
        lines.extend(spans.filter(belongs).map(|span| {
            let outcome = ["consumer.outcome", "outbox.outcome"]
                .iter()
                .find_map(|name| attribute(&span.attributes, name));
            let outcome = outcome.unwrap_or_default();
            Line {
                service: service.clone(),
                name: span.name.clone(),
                outcome,
                start_ns: span.start_time_unix_nano,
                end_ns: span.end_time_unix_nano,
            }
        }));
    }
    lines.sort_by_key(|line| line.start_ns);
    lines
}

pub(super) fn draw(lines: &[Line]) -> String {
    let Some(start) = lines.iter().map(|line| line.start_ns).min() else {
        return String::new();
    };
    let whole = lines.iter().map(|line| line.end_ns).max().unwrap_or(start) - start;
    let ms = |ns: u64| numbers::figure(ns as f64 / 1e6);
    let column = |ns: u64| (ns as f64 / whole.max(1) as f64 * WIDTH as f64) as usize;
    let mut text = String::new();
    for line in lines {
        let (from, to) = (line.start_ns - start, line.end_ns.max(line.start_ns) - start);
        let left = column(from).min(WIDTH - 1);
        let length = (column(to).max(left + 1) - left).min(WIDTH - left);
        let bar: String = std::iter::repeat_n(BAR, length).collect();
        let bar = format!("{}{bar}{}", " ".repeat(left), " ".repeat(WIDTH - left - length));
        text.push_str(&format!(
            "  {:<21} {:<21} |{bar}| +{} ms, {} ms{}{}\n",
            line.service,
            line.name,
            ms(from),
            ms(to - from),
            if line.outcome.is_empty() { "" } else { ", " },
            line.outcome
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_span() {
        // GIVEN two spans, the second in the second half of the first
        let line = |name: &str, start_ns, end_ns| Line {
            service: "s".into(),
            name: name.into(),
            outcome: String::new(),
            start_ns,
            end_ns,
        };
        // WHEN they are drawn
        let text = draw(&[line("a", 1_000_000, 5_000_000), line("b", 3_000_000, 5_000_000)]);
        // THEN their bars are as long as they are, and end together
        let lines: Vec<&str> = text.lines().collect();
        let bars = |line: &str| line.chars().filter(|c| *c == BAR).count();
        assert_eq!((bars(lines[0]), bars(lines[1])), (WIDTH, WIDTH / 2));
        let ends = |line: &str| line.contains("█|");
        assert!(lines.iter().all(|line| ends(line)), "{text}");
        assert_eq!(draw(&[]), "");
    }
}

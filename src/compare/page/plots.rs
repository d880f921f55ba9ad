//! The plots: latency curves, lines over time, and bars of costs.

use maud::{Markup, html};

use super::drawing::{
    PlotArea, Scale, WIDTH, apart, bar, dot, label, line, path, place, polyline, svg, width,
};
use crate::compare::measures::CostMeasure;
use crate::compare::numbers;
use crate::compare::plan::CaptureMode;
use crate::compare::report::{ComparisonReport, Drain, Latencies, RateGroup, Run, Second};

/// A curve leaves out smaller steps. It only goes right and up, so that its length is bounded, too:
/// no more than 300 steps fit into its area.
const STEP: f64 = 1.65;
const CURVES: PlotArea = PlotArea { left: 42.0, right: 332.0, top: 32.0, bottom: 226.0 };
const TIMELINES: PlotArea = PlotArea { left: 46.0, right: 310.0, top: 10.0, bottom: 142.0 };
/// The quantiles with guides and dots.
const MARKED: [(f64, &str); 2] = [(0.5, "p50"), (0.99, "p99")];

const BARS_LEFT: f64 = 52.0;
/// Leaves room for the value beside the longest bar.
const BARS_RIGHT: f64 = 292.0;
const BAR_HEIGHT: f64 = 11.0;
const BAR_ROW: f64 = 15.0;
const BAR_HEADING: f64 = 16.0;
const BETWEEN_GROUPS: f64 = 7.0;

/// The CSS classes of polling, from the shortest interval to the longest: shades of one colour.
/// Line styles differ, too, for readers who cannot tell the colours apart.
const RAMP: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];

/// The plots of a report, in which each mode has its colour and its line style.
pub(super) struct Plots<'a> {
    rates: &'a [RateGroup<'a>],
    modes: Vec<CaptureMode>,
}

/// A value over time, which may be absent in some seconds.
struct Track {
    title: &'static str,
    /// Beside each drawing: in print the title may be on another page.
    name: &'static str,
    value: fn(&Second) -> Option<f64>,
    show: fn(f64) -> String,
}

const TRACKS: [Track; 3] = [
    Track {
        title: "p99 of each second's deliveries",
        name: "p99",
        value: |second| (second.delivered > 0).then_some(second.p99_ms),
        show: numbers::ms,
    },
    Track {
        title: "p50 of each second's deliveries",
        name: "p50",
        value: |second| (second.delivered > 0).then_some(second.p50_ms),
        show: numbers::ms,
    },
    Track {
        title: "Events written and not yet delivered",
        name: "backlog",
        value: |second| Some(second.backlog as f64),
        show: numbers::figure,
    },
];

/// Bars under a heading, which may be empty.
type BarGroup = (String, Vec<(CaptureMode, Option<f64>)>);

impl<'a> Plots<'a> {
    pub(super) fn new(report: &ComparisonReport, rates: &'a [RateGroup<'a>]) -> Plots<'a> {
        Plots { rates, modes: report.modes() }
    }

    /// The CSS class of a mode.
    pub(super) fn class(&self, mode: CaptureMode) -> &'static str {
        if mode == CaptureMode::Cdc {
            return "cdc";
        }
        let polling: Vec<_> = self.modes.iter().filter(|it| **it != CaptureMode::Cdc).collect();
        let at = polling.iter().position(|other| **other == mode).unwrap_or(0);
        let gaps = polling.len().saturating_sub(1);
        // Few intervals are spread over the ramp; many intervals share its steps.
        let step = (at * (RAMP.len() - 1) + gaps / 2).checked_div(gaps).unwrap_or(RAMP.len() / 2);
        RAMP.get(step).copied().unwrap_or_default()
    }

    pub(super) fn legend(&self) -> Markup {
        html! {
            p.legend { @for mode in &self.modes { span { (self.sample(*mode)) (mode.name()) } " " } }
        }
    }

    /// A piece of a mode's line.
    pub(super) fn sample(&self, mode: CaptureMode) -> Markup {
        let class = format!("curve {}", self.class(mode));
        html! {
            svg.sample viewBox="0 0 30 8" aria-hidden="true" { (path("M2 4H28", &class)) }
        }
    }

    /// The share of the events that had arrived after a time, one curve per mode.
    pub(super) fn latencies(&self) -> Markup {
        let all = self.rates.iter().flat_map(|at| &at.runs).map(|run| run.latencies.micros());
        let ends = all.filter_map(|micros| Some([*micros.first()?, *micros.last()?])).flatten();
        let x = Scale::log(ends.map(|micros| f64::from(micros) / 1000.0), CURVES.across());
        let curves = |at: &RateGroup<'_>| (numbers::rate(at.rate), "", self.latency_curves(at, &x));
        figures(self.rates.iter().map(curves))
    }

    fn latency_curves(&self, at: &RateGroup<'_>, x: &Scale) -> Markup {
        let y = Scale::linear(1.0, CURVES.upwards());
        let mut parts = CURVES.axis_x(x, numbers::ms);
        parts.extend(CURVES.axis_y(&y, |share| format!("{} %", numbers::figure(share * 100.0))));
        for (share, name) in MARKED {
            parts.push(line((CURVES.left, y.at(share)), (CURVES.right, y.at(share)), "guide"));
            parts.push(label((CURVES.right + 4.0, y.at(share) + 3.5), "start", "tick", name));
        }
        let arrived = |run: &&&Run| !run.latencies.micros().is_empty();
        let seen: Vec<&Run> = at.runs.iter().filter(arrived).copied().collect();
        // In reverse, so that nothing covers the curve of the slot.
        for run in seen.iter().rev() {
            let class = self.class(run.result.mode);
            parts.push(path(&curve(&run.latencies, x, &y), &format!("curve {class}")));
            for (share, name) in MARKED {
                let value = run.latencies.quantile_ms(share).unwrap_or_default();
                let tooltip = format!("{}, {name}: {}", run.result.mode.long(), numbers::ms(value));
                parts.push(dot((x.at(value), y.at(share)), &format!("dot {class}"), &tooltip));
            }
        }
        // Names above the ends of the curves, with lines to them.
        let end = |run: &Run| x.at(run.latencies.quantile_ms(1.0).unwrap_or_default());
        let wish = |run: &&Run| (end(run), width(&run.result.mode.short()) + 8.0);
        let wishes: Vec<(f64, f64)> = seen.iter().map(wish).collect();
        for (run, at) in seen.iter().zip(apart(&wishes, CURVES.left - 10.0, WIDTH)) {
            let (class, name) = (self.class(run.result.mode), run.result.mode.short());
            parts.push(line((at, 15.0), (end(run), CURVES.top), &format!("lead {class}")));
            parts.push(label((at, 11.0), "middle", &format!("label {class}"), &name));
        }
        let rate = numbers::rate(at.rate);
        svg(250.0, &format!("Share of events delivered within a latency, at {rate}"), &parts)
    }

    /// Latency and backlog over time.
    pub(super) fn timelines(&self) -> Markup {
        let seconds = || self.rates.iter().flat_map(|at| &at.runs).flat_map(|run| &run.seconds);
        let end = seconds().map(|second| second.at_s).max().unwrap_or(0);
        let x = Scale::linear(f64::from(end), TIMELINES.across());
        let [p99, p50, _] = &TRACKS;
        let latencies = seconds().flat_map(|second| [(p50.value)(second), (p99.value)(second)]);
        let latency = Scale::log(latencies.flatten(), TIMELINES.upwards());
        let most = seconds().map(|second| second.backlog).max().unwrap_or(0);
        let backlog = Scale::count(most as f64, TIMELINES.upwards());
        html! {
            @for (track, y) in TRACKS.iter().zip([&latency, &latency, &backlog]) {
                h3 { (track.title) }
                (figures(self.rates.iter().map(|at| {
                    (numbers::rate(at.rate), track.name, self.timeline(at, track, &x, y))
                })))
            }
        }
    }

    fn timeline(&self, at: &RateGroup<'_>, track: &Track, x: &Scale, y: &Scale) -> Markup {
        let mut parts = TIMELINES.axis_x(x, |second| format!("{} s", numbers::figure(second)));
        parts.extend(TIMELINES.axis_y(y, track.show));
        let mut ends: Vec<(CaptureMode, f64)> = Vec::new();
        for run in at.runs.iter().rev() {
            let class = self.class(run.result.mode);
            let point = |it: &Second| Some((x.at(it.at_s.into()), y.at((track.value)(it)?)));
            let points: Vec<(f64, f64)> = run.seconds.iter().filter_map(point).collect();
            let Some(last) = points.last() else { continue };
            parts.push(match points.as_slice() {
                [(x, y)] => bar((x - 2.0, y - 2.0), (4.0, 4.0), &format!("fill {class}")),
                _ => path(&polyline(&points), &format!("curve thin {class}")),
            });
            ends.push((run.result.mode, last.1));
        }
        if ends.is_empty() {
            let PlotArea { left, right, top, bottom } = TIMELINES;
            let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
            parts.push(label(middle, "middle", "tick", "nothing arrived"));
        }
        // Names at the right ends.
        ends.reverse();
        let wishes: Vec<(f64, f64)> = ends.iter().map(|(_, y)| (*y, 12.0)).collect();
        let places = apart(&wishes, TIMELINES.top - 6.0, TIMELINES.bottom + 6.0);
        for ((mode, _), y) in ends.iter().zip(places) {
            let class = format!("label {}", self.class(*mode));
            parts.push(label((TIMELINES.right + 5.0, y + 3.5), "start", &class, &mode.short()));
        }
        let about = format!("{} at {}, by mode", track.title, numbers::rate(at.rate));
        svg(172.0, &about, &parts)
    }

    /// Draws the cost of each mode, one figure per measure.
    pub(super) fn costs(&self, measures: &[CostMeasure]) -> Markup {
        figures(measures.iter().map(|measure| {
            let bar = |run: &&Run| (run.result.mode, (measure.of)(&run.result));
            let group =
                |at: &RateGroup<'_>| (numbers::rate(at.rate), at.runs.iter().map(bar).collect());
            let groups: Vec<BarGroup> = self.rates.iter().map(group).collect();
            let title = numbers::capitalized(measure.title);
            let about = format!("{title} {}, by mode and rate", measure.unit);
            (title, measure.unit, self.bars(&groups, &about, measure.show))
        }))
    }

    /// How fast a backlog was drained.
    pub(super) fn drains(&self, drains: &[&Drain]) -> Markup {
        let group = |of: fn(&Drain) -> Option<f64>| {
            let bars = drains.iter().map(|drain| (drain.result.mode, of(drain)));
            [(String::new(), bars.collect())]
        };
        let speed = group(|drain| (drain.seconds > 0.0).then(|| drain.per_second()));
        let first = group(|drain| (drain.arrived() > 0).then_some(drain.first_s));
        let per_second = |value| format!("{}/s", numbers::figure(value));
        let speed = self.bars(&speed, "Events per second of the drain, by mode", per_second);
        let first = self.bars(&first, "Seconds to the first event, by mode", numbers::seconds);
        figures([
            ("Speed".to_owned(), "events per second, from the first to the last", speed),
            ("First event".to_owned(), "after the start of the relay's process", first),
        ])
    }

    /// Horizontal bars, each with its value beside it, which may be 0 or not known.
    fn bars(&self, groups: &[BarGroup], about: &str, show: impl Fn(f64) -> String) -> Markup {
        let values = groups.iter().flat_map(|(_, bars)| bars).filter_map(|(_, value)| *value);
        let x = Scale::linear(values.fold(0.0, f64::max), (BARS_LEFT, BARS_RIGHT));
        let mut parts = Vec::new();
        let mut y = 0.0;
        for (heading, bars) in groups {
            if !heading.is_empty() {
                parts.push(label((0.0, y + 11.0), "start", "head", heading));
                y += BAR_HEADING;
            }
            let top = y;
            for (mode, value) in bars {
                let (class, at) = (self.class(*mode), y + 9.5);
                let name = format!("label {class}");
                parts.push(label((BARS_LEFT - 6.0, at), "end", &name, &mode.short()));
                y += BAR_ROW;
                let Some(value) = value.filter(|value| value.is_finite()) else {
                    parts.push(label((BARS_LEFT + 6.0, at), "start", "unknown", "not known"));
                    continue;
                };
                // A value above zero is visible.
                let length = if value > 0.0 { (x.at(value) - BARS_LEFT).max(1.0) } else { 0.0 };
                let size = (length, BAR_HEIGHT);
                parts.push(bar((BARS_LEFT, at - 9.5), size, &format!("fill {class}")));
                let text = if value > 0.0 { show(value) } else { "0".to_owned() };
                parts.push(label((BARS_LEFT + length + 5.0, at), "start", "value", &text));
            }
            let bottom = y - BAR_ROW + BAR_HEIGHT;
            parts.push(line((BARS_LEFT, top), (BARS_LEFT, bottom), "axis"));
            y += BETWEEN_GROUPS;
        }
        svg(y.max(BAR_ROW), about, &parts)
    }
}

/// One step up per event, as far as the steps are large enough to be visible.
fn curve(latencies: &Latencies, x: &Scale, y: &Scale) -> String {
    let places = latencies.micros().iter().map(|micros| x.at(f64::from(*micros) / 1000.0));
    let count = latencies.micros().len();
    let mut last = (places.clone().next().unwrap_or_default(), y.at(0.0));
    let mut path = polyline(&[last]);
    for (at, x) in (1..).zip(places) {
        let here = (x, y.at(at as f64 / count as f64));
        let moved = (here.0 - last.0).abs() + (here.1 - last.1).abs();
        if moved >= STEP || at == count {
            path += &format!("H{}V{}", place(here.0), place(here.1));
            last = here;
        }
    }
    path
}

/// Drawings side by side, as many as fit: title, note, drawing.
fn figures<'a>(all: impl IntoIterator<Item = (String, &'a str, Markup)>) -> Markup {
    html! {
        div.grid {
            @for (title, note, drawing) in all {
                figure {
                    figcaption {
                        (title) " "
                        @if !note.is_empty() { span { (note) } }
                    }
                    (drawing)
                }
            }
        }
    }
}

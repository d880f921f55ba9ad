//! How latency and backlog went, second by second.

use crate::base::html::escape;
use crate::compare::report::{Mode, Second};

use super::lineup::{AtRate, Lineup};
use super::plot::{self, Area};
use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use super::text;

const HEIGHT: f64 = 172.0;
const AREA: Area = Area { left: 46.0, right: 310.0, top: 10.0, bottom: 142.0 };

/// One value for each second in which there is one.
struct Track {
    title: &'static str,
    /// Beside each drawing: on paper the title may be on another page.
    name: &'static str,
    value: fn(&Second) -> Option<f64>,
    show: fn(f64) -> String,
}

const P99: Track = Track {
    title: "p99 of each second's deliveries",
    name: "p99",
    value: |second| (second.delivered > 0).then_some(second.p99_ms),
    show: text::ms,
};
const P50: Track = Track {
    title: "p50 of each second's deliveries",
    name: "p50",
    value: |second| (second.delivered > 0).then_some(second.p50_ms),
    show: text::ms,
};
const BACKLOG: Track = Track {
    title: "Events written and not yet delivered",
    name: "backlog",
    value: |second| Some(second.backlog as f64),
    show: text::figure,
};

pub(super) fn section(rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    let seconds = || rates.iter().flat_map(|at| &at.runs).flat_map(|run| &run.seconds);
    let end = seconds().map(|second| second.at_s).max().unwrap_or(0);
    let x = Scale::linear(f64::from(end), AREA.across());
    let latencies = seconds().flat_map(|second| [(P50.value)(second), (P99.value)(second)]);
    let latency = Scale::log(latencies.flatten(), AREA.upwards());
    let most = seconds().map(|second| second.backlog).max().unwrap_or(0);
    let backlog = Scale::count(most as f64, AREA.upwards());
    let mut html = String::new();
    for (track, y) in [(P99, &latency), (P50, &latency), (BACKLOG, &backlog)] {
        let drawings = rates.iter().map(|at| {
            let drawing = drawing(at, lineup, &track, (&x, y));
            plot::figure(&text::rate(at.rate), track.name, &drawing)
        });
        let drawings: Vec<String> = drawings.collect();
        html.push_str(&format!("<h3>{}</h3>\n{}", escape(track.title), plot::grid(&drawings)));
    }
    html
}

fn drawing(at: &AtRate<'_>, lineup: &Lineup, track: &Track, (x, y): (&Scale, &Scale)) -> String {
    let label = format!("{} at {}, by mode", track.title, text::rate(at.rate));
    let mut svg = Svg::new(plot::WIDTH, HEIGHT, &label);
    plot::axis_x(&mut svg, &AREA, x, |second| format!("{} s", text::figure(second)));
    plot::axis_y(&mut svg, &AREA, y, track.show);
    let mut ends: Vec<(Mode, f64)> = Vec::new();
    for run in at.runs.iter().rev() {
        let points = run
            .seconds
            .iter()
            .filter_map(|second| Some((x.at(second.at_s.into()), y.at((track.value)(second)?))));
        let points: Vec<(f64, f64)> = points.collect();
        let look = lineup.look(run.mode);
        let mut path = Path::default();
        points.iter().for_each(|point| path.go(*point));
        match points.as_slice() {
            [] => continue,
            [point] => svg.bar((point.0 - 2.0, point.1 - 2.0), (4.0, 4.0), &format!("fill {look}")),
            _ => svg.path(&path, &format!("curve thin {look}")),
        }
        ends.extend(points.last().map(|point| (run.mode, point.1)));
    }
    if ends.is_empty() {
        let middle = ((AREA.left + AREA.right) / 2.0, (AREA.top + AREA.bottom) / 2.0);
        svg.word(middle, Anchor::Middle, "tick", "nothing arrived");
    }
    ends.reverse();
    plot::end_labels(&mut svg, &AREA, lineup, &ends);
    svg.finish()
}

//! How latency and backlog went, second by second.

use crate::compare::report::{Mode, Second};
use crate::html::escape;

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
    value: fn(&Second) -> Option<f64>,
}

const P99: Track = Track {
    title: "p99 of each second's deliveries",
    value: |s| (s.delivered > 0).then_some(s.p99_ms),
};
const P50: Track = Track {
    title: "p50 of each second's deliveries",
    value: |s| (s.delivered > 0).then_some(s.p50_ms),
};
const BACKLOG: Track =
    Track { title: "Events written and not yet delivered", value: |s| Some(s.backlog as f64) };

pub(super) fn section(rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    let seconds = || rates.iter().flat_map(|at| &at.runs).flat_map(|run| &run.seconds);
    let end = seconds().map(|second| second.at_s).max().unwrap_or(0);
    let x = Scale::linear(f64::from(end), AREA.across());
    let latencies = seconds().flat_map(|second| [(P50.value)(second), (P99.value)(second)]);
    let latency = Scale::log(latencies.flatten(), AREA.upwards());
    let most = seconds().map(|second| second.backlog).max().unwrap_or(0);
    let backlog = Scale::count(most as f64, AREA.upwards());
    let ms: fn(f64) -> String = text::ms;
    let events: fn(f64) -> String = text::figure;
    let mut html = String::new();
    for (track, y, name) in [(P99, &latency, ms), (P50, &latency, ms), (BACKLOG, &backlog, events)]
    {
        let figures: Vec<String> = rates
            .iter()
            .map(|at| {
                let title = text::rate(at.rate);
                plot::figure(&title, "", &drawing(at, lineup, &track, (&x, y), name))
            })
            .collect();
        html.push_str(&format!("<h3>{}</h3>\n{}", escape(track.title), plot::grid(&figures)));
    }
    html
}

fn drawing(
    at: &AtRate<'_>,
    lineup: &Lineup,
    track: &Track,
    (x, y): (&Scale, &Scale),
    name: fn(f64) -> String,
) -> String {
    let label = format!("{} at {}, by mode", track.title, text::rate(at.rate));
    let mut svg = Svg::new(plot::WIDTH, HEIGHT, &label);
    plot::axis_x(&mut svg, &AREA, x, |second| format!("{} s", text::figure(second)));
    plot::axis_y(&mut svg, &AREA, y, name);
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

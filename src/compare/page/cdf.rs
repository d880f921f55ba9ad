//! How many events had arrived after how long: one curve for each mode.

use crate::compare::report::Run;

use super::lineup::{AtRate, Lineup, long, short};
use super::plot::{self, Area, Wish};
use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use super::text;

const HEIGHT: f64 = 250.0;
const AREA: Area = Area { left: 42.0, right: 332.0, top: 32.0, bottom: 226.0 };

/// A curve leaves out what moves it by less. It only goes right and up, so this also bounds its
/// length: no more than 300 steps fit into the area.
const STEP: f64 = 1.65;

pub(super) fn section(rates: &[AtRate<'_>], lineup: &Lineup) -> String {
    let all = rates.iter().flat_map(|at| &at.runs);
    let ends = all.filter_map(|run| Some([run.latencies_us.first()?, run.latencies_us.last()?]));
    let x = Scale::log(ends.flatten().map(|us| f64::from(*us) / 1000.0), AREA.across());
    let figures: Vec<String> = rates
        .iter()
        .map(|at| {
            let title = text::rate(at.rate);
            plot::figure(&title, "", &drawing(at, lineup, &x))
        })
        .collect();
    plot::grid(&figures)
}

fn drawing(at: &AtRate<'_>, lineup: &Lineup, x: &Scale) -> String {
    let y = Scale::linear(1.0, AREA.upwards());
    let label = format!("Share of events delivered within a latency, at {}", text::rate(at.rate));
    let mut svg = Svg::new(plot::WIDTH, HEIGHT, &label);
    plot::axis_x(&mut svg, &AREA, x, text::ms);
    plot::axis_y(&mut svg, &AREA, &y, |share| format!("{} %", text::figure(share * 100.0)));
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        svg.line((AREA.left, y.at(share)), (AREA.right, y.at(share)), "guide");
        svg.word((AREA.right + 4.0, y.at(share) + 3.5), Anchor::Start, "tick", name);
    }
    let seen: Vec<&Run> =
        at.runs.iter().copied().filter(|run| !run.latencies_us.is_empty()).collect();
    // The slot is drawn last: nothing lies upon it.
    for run in seen.iter().rev() {
        let look = lineup.look(run.mode);
        svg.path(&curve(&run.latencies_us, x, &y), &format!("curve {look}"));
        for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
            let value = run.quantile_ms(share);
            let told = format!("{}, {name}: {}", long(run.mode), text::ms(value));
            svg.dot((x.at(value), y.at(share)), &format!("dot {look}"), &told);
        }
    }
    labels(&mut svg, &seen, lineup, x);
    svg.finish()
}

/// Steps up by each event, where the steps are large enough to be seen.
fn curve(latencies_us: &[u32], x: &Scale, y: &Scale) -> Path {
    let mut path = Path::default();
    let count = latencies_us.len() as f64;
    let place = |at: usize| {
        let value = f64::from(latencies_us[at]) / 1000.0;
        (x.at(value), y.at((at + 1) as f64 / count))
    };
    let first = latencies_us.first().map_or(0.0, |us| f64::from(*us) / 1000.0);
    let mut last = (x.at(first), y.at(0.0));
    path.go(last);
    for at in 0..latencies_us.len() {
        let here = place(at);
        let moved = (here.0 - last.0).abs() + (here.1 - last.1).abs();
        if moved >= STEP || at + 1 == latencies_us.len() {
            path.step(here);
            last = here;
        }
    }
    path
}

/// Names above the curves' ends, led to them where they had to give way.
fn labels(svg: &mut Svg, runs: &[&Run], lineup: &Lineup, x: &Scale) {
    let end = |run: &Run| x.at(run.quantile_ms(1.0));
    let wish = |run: &&Run| Wish { at: end(run), room: plot::width(&short(run.mode)) + 8.0 };
    let wishes: Vec<Wish> = runs.iter().map(wish).collect();
    let places = plot::apart(&wishes, AREA.left - 10.0, plot::WIDTH);
    for (run, place) in runs.iter().zip(places) {
        let look = lineup.look(run.mode);
        svg.line((place, 15.0), (end(run), AREA.top), &format!("lead {look}"));
        svg.word((place, 11.0), Anchor::Middle, &format!("label {look}"), &short(run.mode));
    }
}

//! How fast a backlog went out that was there before the relay was.

use crate::compare::report::{Drain, Report};

use super::bars::{self, Group};
use super::lineup::{Lineup, order};
use super::{plot, text};

pub(super) fn section(report: &Report, lineup: &Lineup) -> String {
    let mut drains: Vec<&Drain> = report.drains.iter().collect();
    drains.sort_by_key(|drain| order(drain.mode));
    let group = |of: fn(&Drain) -> Option<f64>| {
        let bars = drains.iter().map(|drain| (drain.mode, of(drain))).collect();
        [Group { heading: String::new(), bars }]
    };
    let speed = group(|drain| (drain.seconds > 0.0).then(|| drain.per_second()));
    let first = group(|drain| (drain.events > drain.missing).then_some(drain.first_s));
    let speed = bars::drawing(&speed, lineup, "Events per second of the drain, by mode", |value| {
        format!("{}/s", text::figure(value))
    });
    let first = bars::drawing(&first, lineup, "Seconds to the first event, by mode", text::seconds);
    plot::grid(&[
        plot::figure("Speed", "events per second, from the first to the last", &speed),
        plot::figure("First event", "after the start of the relay's process", &first),
    ])
}

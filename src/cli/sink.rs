//! The broker's part of `walrelay check` and `walrelay init`.

use std::collections::BTreeSet;

use super::output::say;
use crate::app::wanted;
use crate::base::error::Fault;
use crate::config::Config;
use crate::dead_letter::tail;
use crate::delivery::settings::OnDeadLetter;
use crate::doctor::finding::Finding;
use crate::source::sampled_topics::SampledTopics;

/// What is wrong, and what is right, with the sink. `rows` is what is known of the topics that rows
/// lead to.
pub(super) fn findings(config: &Config, rows: &[SampledTopics]) -> Vec<Finding> {
    let from_rows: BTreeSet<String> = rows.iter().flat_map(|it| it.topics.clone()).collect();
    let mut wanted = wanted(config);
    wanted.from_rows = from_rows.into_iter().collect();
    let mut found = config.sink.inspect(&wanted);
    // What cannot be looked at would only be told once more.
    if found.faults.is_empty() && config.delivery.on_dead_letter == OnDeadLetter::ParkKey {
        found.faults.extend(tail::inspect(&*config.sink, &config.dead_letter).err());
    }
    let well = found.well.into_iter().map(|text| Finding::ok("sink", text));
    let unread = rows.iter().filter_map(|rows| rows.unread.as_deref());
    let unread = unread.map(|text| Finding::warn("sink.topics", text));
    let doubtful = found.doubtful.into_iter().map(|text| Finding::warn("sink", text));
    let faults = found.faults.into_iter().map(Finding::fail);
    well.chain(unread).chain(doubtful).chain(faults).collect()
}

/// Makes what is missing at the broker; says what, and how much that is.
pub(super) fn init(config: &Config) -> Result<usize, Vec<Fault>> {
    let made = config.sink.prepare(&wanted(config))?;
    for thing in &made {
        say(&format!("+ make {thing}"));
    }
    Ok(made.len())
}

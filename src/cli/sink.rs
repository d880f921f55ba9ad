//! The broker's part of `walrelay check` and `walrelay init`.

use std::collections::BTreeSet;

use super::output::say;
use crate::app::sink_requirements;
use crate::base::error::Fault;
use crate::base::finding::{Finding, is_sound};
use crate::config::Config;
use crate::dead_letter::tail;
use crate::delivery::settings::OnDeadLetter;
use crate::source::sampled_topics::SampledTopics;

/// What the sink is found to be like. `rows` names the topics that sampled rows lead to.
pub(super) fn findings(config: &Config, rows: &[SampledTopics]) -> Vec<Finding> {
    let from_rows: BTreeSet<String> = rows.iter().flat_map(|it| it.topics.clone()).collect();
    let mut requirements = sink_requirements(config);
    requirements.from_rows = from_rows.into_iter().collect();
    let unread = rows.iter().filter_map(|rows| rows.unread.as_deref());
    let mut found: Vec<Finding> = unread.map(|text| Finding::warn("sink.topics", text)).collect();
    found.extend(config.sink.inspect(&requirements));
    // If the broker has a fault, reading the dead-letter topic would only report it again.
    if is_sound(&found) && config.delivery.on_dead_letter == OnDeadLetter::ParkKey {
        let unreadable = tail::inspect(&*config.sink, &config.dead_letter).err();
        found.extend(unreadable.map(Finding::fail));
    }
    found.sort_by_key(|finding| finding.level);
    found
}

/// Makes what is missing at the broker; says what, and how much that is.
pub(super) fn init(config: &Config) -> Result<usize, Vec<Fault>> {
    let made = config.sink.prepare(&sink_requirements(config))?;
    for thing in &made {
        say(&format!("+ make {thing}"));
    }
    Ok(made.len())
}

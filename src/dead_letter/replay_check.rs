//! Which dead letters a replay passes over, and the fault that says why. A dry run checks the same, and
//! cannot know what the broker would refuse.

use std::collections::HashSet;

use super::destinations::Destinations;
use super::filter::DeadLetterFilter;
use super::fold::DeadLetterIndex;
use super::owner::slot_of;
use super::passed_over::PassedOver;
use super::reader::DeadLetterTopic;
use super::record::{DeadLetter, NotReplayable};
use super::writer::{KeyHash, service_of};
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::text::escaped;

/// The code of a fault: a replay passes dead letters over.
pub(crate) const UNFIT: &str = "dead-letter.unfit";

pub(super) struct ReplayCheck<'a> {
    topic: &'a DeadLetterTopic<'a>,
    /// Where events may go; none for anywhere.
    destinations: Option<&'a Destinations>,
    pub(super) passed_over: PassedOver,
    /// Keys of events that were passed over: later events of them are passed over, too.
    passed_keys: HashSet<(KeyHash, String, String)>,
    /// The first event that the broker cannot carry, and why.
    uncarried: Option<String>,
}

impl<'a> ReplayCheck<'a> {
    pub(super) fn new(
        topic: &'a DeadLetterTopic<'a>,
        destinations: Option<&'a Destinations>,
    ) -> ReplayCheck<'a> {
        let (passed_over, passed_keys) = (PassedOver::default(), HashSet::new());
        ReplayCheck { topic, destinations, passed_over, passed_keys, uncarried: None }
    }

    /// Whether the event of the dead letter is not published. Then the dead letter is counted, and no later event
    /// of its key is published.
    pub(super) fn passes_over(&mut self, letter: &DeadLetter) -> bool {
        let Some(why) = self.obstacle(letter) else { return false };
        self.pass_over(letter, why);
        true
    }

    /// Why the event of the dead letter is not published.
    fn obstacle(&self, letter: &DeadLetter) -> Option<NotReplayable> {
        let is_behind = || ordered_by(letter).is_some_and(|key| self.passed_keys.contains(&key));
        self.topic
            .not_replayable(letter)
            .or_else(|| self.other_route(letter))
            .or_else(|| is_behind().then_some(NotReplayable::Behind))
    }

    fn other_route(&self, letter: &DeadLetter) -> Option<NotReplayable> {
        let consumer = service_of(&self.topic.address.topic);
        let consumer = consumer.filter(|_| letter.is_of_consumer());
        let includes = self.destinations?.include(&letter.exchange, &letter.topic, consumer);
        (!includes).then_some(NotReplayable::Elsewhere)
    }

    fn pass_over(&mut self, letter: &DeadLetter, why: NotReplayable) {
        self.passed_over.add(why);
        self.passed_keys.extend(ordered_by(letter));
    }

    /// Counts a dead letter whose event the broker cannot carry.
    pub(super) fn pass_over_uncarried(&mut self, letter: &DeadLetter, reason: &str) {
        self.pass_over(letter, NotReplayable::Uncarried);
        let event = || format!("event {}: {reason}", escaped(&letter.event_id));
        self.uncarried.get_or_insert_with(event);
    }

    /// The fault of a replay that has passed dead letters over.
    pub(super) fn fault(&self) -> Option<Fault> {
        let passed_over = &self.passed_over;
        let skipped = passed_over.total();
        (skipped > 0).then(|| {
            let reasons = passed_over.reasons(self.uncarried.as_deref().unwrap_or_default());
            let anywhere = match passed_over.count(NotReplayable::Elsewhere) {
                0 => "",
                _ => {
                    "; where no route leads any more, if the dead letter is of this relay, repeat the command with --any-destination"
                }
            };
            let mend = format!(
                "look at them: walrelay dlq list; publish the event anew from its source, then: walrelay dlq discard ID (docs/dead-letters.md, \"Replay\", which has another order for park_key){anywhere}; then replay what follows it"
            );
            let what = format!("{} cannot be replayed: {reasons}", counted(skipped, "dead letter"));
            Fault::new(Exit::Failed, UNFIT, what, "", mend)
        })
    }
}

/// Events with the same key, database and slot have an order.
fn ordered_by(letter: &DeadLetter) -> Option<(KeyHash, String, String)> {
    let of = |hash| (hash, letter.system.clone(), slot_of(letter).to_owned());
    letter.key_hash().map(of)
}

/// Checks the dead letters that `filter` matches for what a replay would pass over before it publishes.
pub(crate) fn check_replayable(
    topic: &DeadLetterTopic<'_>,
    filter: &DeadLetterFilter,
    index: &DeadLetterIndex,
    destinations: Option<&Destinations>,
) -> Result<(), Fault> {
    let mut check = ReplayCheck::new(topic, destinations);
    topic.letters(filter, index, |letter, _| {
        check.passes_over(letter);
        Ok(true)
    })?;
    check.fault().map_or(Ok(()), Err)
}

#[cfg(test)]
#[path = "replay_check_tests.rs"]
mod tests;

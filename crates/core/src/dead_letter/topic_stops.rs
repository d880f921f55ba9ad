//! The stops of a relay that the dead-letter topic has.

use super::record::{StopBody, StopRecord, StopRecordKind};
use crate::base::stop::Stop;

/// Most stops of one relay that are known; each is enough to keep it from going on.
const STANDING_MAX: usize = 16;

/// The stops of one slot that the topic has, in the order of their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicStops {
    /// Nobody has acknowledged them.
    pub standing: Vec<Stop>,
    /// The state of the publication that was acknowledged last.
    pub publication: Option<String>,
}

impl TopicStops {
    pub fn apply(&mut self, record: &StopRecord) {
        let StopBody { stop, publication, .. } = &record.body;
        self.standing.retain(|it| !it.is(&stop.code, stop.since_unix_us));
        match record.kind {
            StopRecordKind::Stopped => {
                if self.standing.len() >= STANDING_MAX {
                    self.standing.remove(0);
                }
                self.standing.push(stop.clone());
            }
            StopRecordKind::Resumed if publication.is_some() => {
                self.publication.clone_from(publication);
            }
            StopRecordKind::Resumed => {}
        }
    }
}

#[cfg(test)]
#[path = "topic_stops_tests.rs"]
mod tests;

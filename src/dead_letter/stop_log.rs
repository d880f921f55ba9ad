//! Stops that are kept in the dead-letter topic, because they belong to it or there is no state
//! file: one record when the relay stops, one when somebody acknowledges it. A reader that does not
//! know them takes them for foreign records.

use std::time::Duration;

use super::owner::LetterOwner;
use super::pipeline;
use super::reader::DeadLetterTopic;
use super::record::{LogRecord, StopBody, StopRecord, StopRecordKind};
use crate::base::error::Fault;
use crate::base::stop::Stop;
use crate::sink::log::ReadFrom;

const PATIENCE: Duration = Duration::from_millis(20);
/// Most stops of one relay that are known; each is enough to keep it from going on.
const STANDING_MAX: usize = 16;

/// Appends the record to the topic, and waits for the broker's confirm; a few seconds at most.
pub(crate) fn append(
    record: &StopRecord,
    topic: &DeadLetterTopic<'_>,
    clock: &dyn Fn() -> i64,
) -> Result<(), Fault> {
    record.record(topic.address, |it| pipeline::append_record(topic, it, PATIENCE, clock))
}

/// The stops of one slot that the topic has, in the order of their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicStops {
    /// Nobody has acknowledged them.
    pub(crate) standing: Vec<Stop>,
    /// The state of the publication that was acknowledged last.
    pub(crate) publication: Option<String>,
}

impl TopicStops {
    pub(crate) fn apply(&mut self, record: &StopRecord) {
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

    /// Reads the whole topic.
    pub(crate) fn read(
        topic: &DeadLetterTopic<'_>,
        owner: &LetterOwner,
    ) -> Result<TopicStops, Fault> {
        let mut stops = TopicStops::default();
        topic.each(topic.reader(ReadFrom::Beginning)?, |record| {
            if let LogRecord::Stop(record) = record
                && owner.has_stopped(&record.body)
            {
                stops.apply(&record);
            }
            Ok(true)
        })?;
        Ok(stops)
    }
}

#[cfg(test)]
#[path = "stop_log_tests.rs"]
mod tests;

//! Stops that are kept in the dead-letter topic, because they belong to it or there is no state
//! file: one record when the relay stops, one when somebody acknowledges it. A reader that does not
//! know them takes them for foreign records.

use std::time::Duration;

use walrelay_core::base::clock::Moment;

use super::owner::LetterOwner;
use super::pipeline;
use super::reader::DeadLetterTopic;
use super::record::{LogRecord, StopRecord};
use super::topic_stops::TopicStops;
use crate::base::error::Fault;
use crate::sink::log::ReadFrom;

const PATIENCE: Duration = Duration::from_millis(20);

/// Appends the record to the topic, and waits for the broker's confirm; a few seconds at most.
pub(crate) fn append(
    record: &StopRecord,
    topic: &DeadLetterTopic<'_>,
    clock: &dyn Fn() -> Moment,
) -> Result<(), Fault> {
    record.record(topic.address, |it| pipeline::append_record(topic, it, PATIENCE, clock))
}

/// Reads the stops of one slot out of the whole topic.
pub(crate) fn read_stops(
    topic: &DeadLetterTopic<'_>,
    owner: &LetterOwner,
) -> Result<TopicStops, Fault> {
    let mut stops = TopicStops::default();
    topic.each(ReadFrom::Beginning, |record| {
        if let LogRecord::Stop(record) = record
            && owner.has_stopped(&record.body)
        {
            stops.apply(&record);
        }
        Ok(true)
    })?;
    Ok(stops)
}

#[cfg(test)]
#[path = "stop_log_tests.rs"]
mod tests;

//! What has arrived at a topic of the memory broker, read as a dead-letter topic.

use std::time::Duration;

use super::{Arrived, MemoryBroker};
use crate::base::error::Fault;
use crate::dead_letter::record::{LogEntry, PartitionOffset};
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// A reader of one topic.
pub(super) struct MemoryLog {
    broker: Option<MemoryBroker>,
    topic: String,
    /// How many of everything that arrived has been looked at.
    next: usize,
    /// How many there were when it was opened.
    end: usize,
    end_told: bool,
}

impl MemoryLog {
    pub(super) fn open(broker: Option<MemoryBroker>, topic: &str, from: &ReadFrom) -> MemoryLog {
        let arrived = broker.as_ref().map(MemoryBroker::arrived).unwrap_or_default();
        let end = arrived.len();
        let next = match from {
            ReadFrom::Beginning => 0,
            ReadFrom::Time(time) => {
                let at = |event: &Arrived| event.topic == topic && event.commit_unix_us >= *time;
                arrived.iter().position(at).unwrap_or(end)
            }
            ReadFrom::End => end,
        };
        MemoryLog { broker, topic: topic.to_owned(), next, end, end_told: false }
    }

    /// The next entry, if there is one by now.
    fn entry(&mut self) -> Option<LogEntry> {
        let broker = self.broker.as_ref()?;
        let limit = if self.end_told { usize::MAX } else { self.end };
        let state = broker.state();
        while let Some(event) = state.arrived.get(self.next).filter(|_| self.next < limit) {
            let partition = event.partition.unwrap_or(0);
            let same = |other: &&Arrived| {
                other.topic == self.topic && other.partition.unwrap_or(0) == partition
            };
            let offset = state.arrived[..self.next].iter().filter(same).count();
            self.next += 1;
            if event.topic == self.topic {
                return Some(LogEntry {
                    position: PartitionOffset {
                        partition,
                        offset: i64::try_from(offset).unwrap_or(i64::MAX),
                    },
                    written_unix_us: event.commit_unix_us,
                    key: event.key.clone(),
                    value: event.value.clone(),
                    headers: event.headers.clone(),
                    event_type: event.event_type.clone(),
                    content_type: event.content_type.clone(),
                });
            }
        }
        None
    }
}

impl DeadLetterLog for MemoryLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        if let Some(entry) = self.entry() {
            return Ok(LogRead::Entry(entry));
        }
        if !self.end_told {
            self.end_told = true;
            return Ok(LogRead::End);
        }
        std::thread::sleep(patience);
        Ok(LogRead::Nothing)
    }
}

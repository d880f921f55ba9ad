//! Parts that unit tests share.

use std::time::{Duration, Instant};

use crate::base::event::{Outbound, Position, Sequence};
use crate::base::lsn::Lsn;
use crate::dead_letter::record::LogEntry;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterSettings, DeadLetterWriter};
use crate::sink::{PublishError, Sink, SinkReport};

pub(crate) fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(number)
}

/// The cause of a dead letter, with its class.
pub(crate) fn cause(class: &str) -> DeadLetterCause {
    DeadLetterCause {
        class: class.to_owned(),
        reason: "refused".to_owned(),
        attempts: 1,
        first_failed_unix_us: 2_000_000,
        failed_unix_us: 3_000_000,
        ..DeadLetterCause::default()
    }
}

/// Takes every event and confirms none.
pub(crate) struct IdleSink;

impl Sink for IdleSink {
    fn publish(&mut self, _: Sequence, _: &Outbound<'_>) -> Result<(), PublishError> {
        Ok(())
    }

    fn poll(&mut self, _: Instant, _: Duration, _: &mut Vec<SinkReport>) {}

    fn retry(&mut self, _: Sequence) {}

    fn replace_with_dead_letter(&mut self, _: Sequence, _: &DeadLetterWriter, _: &DeadLetterCause) {
    }
}

pub(crate) fn dead_letter_writer(value_bytes_max: usize) -> DeadLetterWriter {
    let settings = DeadLetterSettings { value_bytes_max, ..DeadLetterSettings::default() };
    DeadLetterWriter { settings, relay: "walrelay".to_owned(), ..DeadLetterWriter::default() }
}

pub(crate) fn dead_letter_cause() -> DeadLetterCause {
    DeadLetterCause {
        class: "kafka.unknown-topic".to_owned(),
        reason: "no such topic".to_owned(),
        attempts: 5,
        first_failed_unix_us: 2_000_000,
        failed_unix_us: 3_000_000,
        position: Position { commit_lsn: Lsn::from_wire(0x16_B374_D848), ordinal: 3 },
        incomplete: false,
        parks_key: true,
    }
}

/// The entry that a reader of the log gets for a published record.
pub(crate) fn log_entry(record: &Outbound<'_>) -> LogEntry {
    let own = |(name, value): &(&str, &[u8])| ((*name).to_owned(), value.to_vec());
    LogEntry {
        written_unix_us: record.commit_unix_us,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record.headers.iter().map(own).collect(),
        event_type: record.event_type.map(str::to_owned),
        content_type: record.content_type.map(str::to_owned),
        ..LogEntry::default()
    }
}

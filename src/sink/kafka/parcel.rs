//! An event that is kept: a record, and the lane that its key belongs to.

use rdkafka::types::RDKafkaErrorCode as Code;

use super::fault;
use super::letter_limit::LetterLimit;
use crate::base::event::Outbound;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::Failure;
use crate::sink::kafka::producer_ffi::Record;
use crate::sink::key_lanes::{Item, Lanes};

/// An event that is kept.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) record: Record,
    lane: Option<u64>,
    /// Is it a dead letter, or what resolves one? Then it may be cut.
    is_letter: bool,
}

impl Parcel {
    pub(super) fn new(record: Record, lanes: &Lanes) -> Parcel {
        let lane = record.key.as_deref().map(|key| lanes.of(key));
        Parcel { record, lane, is_letter: false }
    }

    pub(super) fn copy(event: &Outbound<'_>, lanes: &Lanes) -> Parcel {
        Parcel::new(Record::copy(event), lanes)
    }

    /// A copy of a dead letter, or of what resolves one, cut to fit. It has the lane of its whole key.
    pub(super) fn copy_letter(letter: &Outbound<'_>, lanes: &Lanes, limit: &LetterLimit) -> Parcel {
        let lane = letter.key.map(|key| lanes.of(key));
        Parcel { record: limit.fit(letter, Record::copy), lane, is_letter: true }
    }

    /// Its dead letter.
    pub(super) fn letter(
        &self,
        mailbox: &DeadLetterWriter,
        cause: &DeadLetterCause,
        limit: &LetterLimit,
    ) -> Parcel {
        let record = self.record.with_outbound(|event| {
            mailbox.compose(event, cause, |letter| limit.fit(letter, Record::copy))
        });
        Parcel { record, lane: self.lane, is_letter: true }
    }

    /// The same letter with less in it, when it was refused with such a code because it is too large.
    pub(super) fn with_less(&self, code: Code, limit: &LetterLimit) -> Option<Parcel> {
        if !self.is_letter {
            return None;
        }
        let less = |letter: &Outbound<'_>| limit.fit_less(code, letter, Record::copy);
        let record = self.record.with_outbound(less)?;
        Some(Parcel { record, lane: self.lane, is_letter: true })
    }

    pub(super) fn failure(&self, code: Code) -> Failure {
        fault::failure(code, &self.record.id, &self.record.topic, self.record.key.as_deref())
    }
}

impl Item for Parcel {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    /// A delivery report names the event by its number.
    fn unique(&self) -> Option<&str> {
        None
    }

    fn size_bytes(&self) -> usize {
        self.record.size_bytes()
    }
}

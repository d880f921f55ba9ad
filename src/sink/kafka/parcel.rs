//! An event that is kept: a record, and the lane that its key belongs to.

use rdkafka::types::RDKafkaErrorCode as Code;

use super::fault;
use crate::ffi::Record;
use crate::letter::{Cause, Mailbox};
use crate::message::Outbound;
use crate::sink::Failure;
use crate::sink::desk::{Item, Lanes};

/// An event that is kept.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) record: Record,
    lane: Option<u64>,
}

impl Parcel {
    pub(super) fn new(record: Record, lanes: &Lanes) -> Parcel {
        let lane = record.key.as_deref().map(|key| lanes.of(key));
        Parcel { record, lane }
    }

    pub(super) fn copy(event: &Outbound<'_>, lanes: &Lanes) -> Parcel {
        Parcel::new(Record::copy(event), lanes)
    }

    /// Its dead letter.
    pub(super) fn letter(&self, mailbox: &Mailbox, cause: &Cause) -> Parcel {
        let record = self.record.with_outbound(|event| mailbox.letter(event, cause, Record::copy));
        Parcel { record, lane: self.lane }
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

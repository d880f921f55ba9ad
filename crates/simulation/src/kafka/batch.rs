//! Records on their way through a client.

use walrelay_core::base::event::Sequence;
use walrelay_core::sink::kafka::record;

use crate::broker::{Content, Record};

/// The bytes of a batch beside its records.
pub(super) const FRAME_BYTES: usize = 60;

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) sequence: Sequence,
    pub(super) record: Record,
    /// The event has asked for its partition.
    pub(super) asked: bool,
    /// The number of the topic, if that was not described to the relay before it handed this one over: it
    /// takes the partition for that of the topic that is described next.
    pub(super) undescribed: Option<u128>,
    /// The number of the topic whose partition has confirmed an event, as the relay knew when it handed this
    /// one over: it sends any number of events to that partition.
    pub(super) confirmed: Option<u128>,
}

/// Records that are sent in one request, under the same numbers however often.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number of its first record.
    pub(super) first: u64,
    pub(super) messages: Vec<Message>,
}

impl Message {
    pub(super) fn bytes(&self) -> usize {
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let headers = self.record.headers.parts().map(|(name, value)| name.len() + value.len() + 4);
        length(self.record.key) + length(self.record.value) + headers.sum::<usize>() + 12
    }

    /// The record as the client gives it back.
    pub(super) fn given_back(&self, partition: usize) -> record::Record {
        let Content { topic, key, value, id, headers } = &*self.record;
        record::Record {
            topic: (*topic).to_owned(),
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            id: id.clone(),
            headers: headers.clone(),
            partition: self.asked.then_some(partition as i32),
            ..record::Record::default()
        }
    }
}

impl Batch {
    /// Whether the relay has taken the partition for that of an earlier topic than this one.
    pub(super) fn is_for_earlier(&self, made: u128) -> bool {
        self.messages.iter().filter_map(|it| it.confirmed).any(|known| known != made)
    }

    /// Whether the client has chosen the partition among those of an earlier topic than this one, which was
    /// never described to the relay.
    pub(super) fn is_placed_in_earlier(&self, made: u128) -> bool {
        self.messages.iter().filter_map(|it| it.undescribed).any(|chosen| chosen != made)
    }

    pub(super) fn bytes(&self) -> usize {
        FRAME_BYTES + self.messages.iter().map(Message::bytes).sum::<usize>()
    }
}

//! A copy of an event, a dead letter or a resolution, kept until the broker has answered for it.

use super::code::Code;
use super::fault::{self, ToolArguments};
use crate::base::event::Outbound;
use crate::base::headers::Headers;
use crate::sink::key_lanes::LaneItem;
use crate::sink::publish::Failure;

#[derive(Clone, Debug, Default)]
pub struct Record {
    pub topic: String,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// The event id; of a failed delivery, what the header `id` says.
    pub id: String,
    pub headers: Headers,
    /// When the event was committed, for its dead letter. Microseconds since the Unix
    /// epoch.
    pub commit_unix_us: i64,
    /// The partition that the event asks for.
    pub partition: Option<i32>,
    /// The lane of the whole key, which a dead letter may have only a part of.
    pub lane: Option<u64>,
    /// A dead letter, or a record that resolves one: it may be cut to fit.
    pub is_dead_letter: bool,
}

impl Record {
    pub(super) fn copy(event: &Outbound<'_>, lane: Option<u64>) -> Record {
        Record {
            topic: event.topic.to_owned(),
            key: event.key.map(<[u8]>::to_vec),
            value: event.value.map(<[u8]>::to_vec),
            id: event.id.to_owned(),
            headers: Headers::copy(event.headers.iter().copied()),
            commit_unix_us: event.commit_unix_us,
            partition: event.partition,
            lane,
            is_dead_letter: false,
        }
    }

    pub(super) fn with_outbound<T>(&self, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> = self.headers.iter().collect();
        then(&Outbound {
            exchange: "",
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            id: &self.id,
            event_type: None,
            content_type: None,
            headers: &headers,
            commit_unix_us: self.commit_unix_us,
            partition: self.partition,
        })
    }

    pub(super) fn failure(&self, code: Code, tools: &ToolArguments) -> Failure {
        let failure = fault::failure(code, &self.id, &self.topic, self.key.as_deref(), tools);
        match code {
            Code::MessageSizeTooLarge | Code::InvalidMessageSize if self.is_dead_letter => {
                Failure { mend: fault::mend_letter_limit(&self.topic, tools), ..failure }
            }
            _ => failure,
        }
    }
}

impl LaneItem for Record {
    fn lane(&self) -> Option<u64> {
        self.lane
    }

    /// A delivery report names the event by its sequence.
    fn unique(&self) -> Option<u64> {
        None
    }

    fn size_bytes(&self) -> usize {
        self.with_outbound(|event| event.size_bytes())
    }
}

//! The attributes that a span has of its event. No payload, and of no text more than its beginning.

use super::context::TraceContext;
use crate::base::encoding::hex;
use crate::base::event::{Outbound, brief};
use crate::base::lsn::Lsn;

/// The span of an event that is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishSpan {
    pub context: TraceContext,
    /// The row's own context.
    pub link: Option<TraceContext>,
    pub start_unix_us: i64,
    pub exchange: Box<str>,
    pub topic: Box<str>,
    /// Only a key that is text.
    pub key: Option<Box<str>>,
    pub event_id: Box<str>,
    /// None of a tombstone.
    pub body_bytes: Option<usize>,
    /// Where a column gave one.
    pub partition: Option<i32>,
    pub commit_lsn: Lsn,
    pub commit_unix_us: i64,
}

impl PublishSpan {
    pub fn of(
        event: &Outbound<'_>,
        commit_lsn: Lsn,
        context: TraceContext,
        link: Option<TraceContext>,
        start_unix_us: i64,
    ) -> PublishSpan {
        let text = |text: &str| Box::from(&*brief(text));
        PublishSpan {
            context,
            link,
            start_unix_us,
            exchange: text(event.exchange),
            topic: text(event.topic),
            key: event.key.and_then(|key| std::str::from_utf8(key).ok()).map(text),
            event_id: text(event.id),
            body_bytes: event.value.map(<[u8]>::len),
            partition: event.partition,
            commit_lsn,
            commit_unix_us: event.commit_unix_us,
        }
    }

    #[must_use]
    pub fn trace_id(&self) -> String {
        hex(&self.context.trace_id)
    }
}

/// The span of an event that is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSpan {
    pub span: PublishSpan,
    pub end_unix_us: i64,
    /// Attempts after the first.
    pub retries: u32,
    /// The error class of an event that became a dead letter.
    pub dead_letter: Option<Box<str>>,
}

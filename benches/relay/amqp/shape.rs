//! Messages of the bare publisher: byte for byte as much as the relay.

use std::time::{SystemTime, UNIX_EPOCH};

use walrelay_amqp::content::Message;
use walrelay_amqp::frame::{self, Frame, FrameKind};
use walrelay_harness::rabbit::Delivery;
use walrelay_harness::{HarnessError, Result};

use crate::bare::payload;

const PERSISTENT: u8 = 2;
const CONTENT_TYPE: &str = "application/json";
const EVENT_TYPE: &str = "created";
const APP_ID: &str = "walrelay";
const ID: &str = "00000000-0000-4000-8000-000000000000";
/// Digits of an id that differ.
const ID_DIGITS: usize = 12;
/// The headers of the default preset, with values of the usual length.
const HEADERS: [(&str, &str); 5] = [
    ("commit_ts", "2026-01-01T00:00:00.000000Z"),
    ("event_type", EVENT_TYPE),
    ("id", ID),
    ("key", "key-500"),
    ("lsn", "0/12345678"),
];
/// Keys, positions and numbers differ by a digit or two.
const SLACK_BYTES: usize = 4;

/// A message but for its body and the end of its id.
pub(crate) struct Shape {
    head: Vec<u8>,
    id_at: usize,
    size_at: usize,
}

impl Shape {
    pub(crate) fn new(exchange: &str, routing_key: &str) -> Shape {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let message = Message {
            exchange,
            routing_key,
            content_type: Some(CONTENT_TYPE),
            headers: HEADERS.into_iter().map(|(name, value)| (name, value.as_bytes())),
            message_id: ID,
            timestamp_unix_s: now.as_secs(),
            kind: Some(EVENT_TYPE),
            app_id: APP_ID,
            body: &[],
        };
        let mut head = Vec::new();
        message.put(super::CHANNEL, usize::MAX, &mut head);
        let publish = Frame::split(&head).expect("frames that were just written");
        let publish_bytes = publish.map_or(0, |(_, length)| length);
        // Behind type, channel and length of the frame, the class and the weight.
        let size_at = publish_bytes + 7 + 4;
        // It is the last of several ids: that of the header stands before it.
        let is_id = |bytes: &[u8]| bytes == ID.as_bytes();
        let id_at = head.windows(ID.len()).rposition(is_id).expect("an id") + ID.len() - ID_DIGITS;
        Shape { head, id_at, size_at }
    }

    /// Appends the message.
    pub(super) fn put(&mut self, number: u64, body: &[u8], out: &mut Vec<u8>) {
        let mut rest = number;
        for digit in self.head[self.id_at..][..ID_DIGITS].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(rest & 15) as usize];
            rest >>= 4;
        }
        self.head[self.size_at..][..8].copy_from_slice(&(body.len() as u64).to_be_bytes());
        out.extend(&self.head);
        frame::put(out, FrameKind::Body, super::CHANNEL, |out| out.extend(body));
    }

    /// Is what the relay published the same load?
    pub(crate) fn compare(relay: &Delivery) -> Result<()> {
        let properties = &relay.properties;
        let names = [
            (properties.content_type.as_deref(), CONTENT_TYPE),
            (properties.kind.as_deref(), EVENT_TYPE),
            (properties.app_id.as_deref(), APP_ID),
        ];
        let mut same = names.iter().all(|(relay, ours)| *relay == Some(*ours));
        same &= properties.message_id.as_ref().is_some_and(|id| id.len() == ID.len());
        same &= properties.delivery_mode == Some(PERSISTENT) && properties.timestamp_s.is_some();
        same &= properties.headers.len() == HEADERS.len();
        same &= HEADERS.iter().all(|(name, value)| {
            let relay = properties.header(name);
            relay.is_some_and(|relay| relay.len().abs_diff(value.len()) <= SLACK_BYTES)
        });
        same &= relay.body.len().abs_diff(payload(0).len()) <= SLACK_BYTES + 4;
        let other = || {
            let bytes = relay.body.len();
            HarnessError::Other(format!(
                "the relay publishes otherwise: {properties:?}, {bytes} bytes"
            ))
        };
        if same { Ok(()) } else { Err(other()) }
    }
}

//! Limits of the broker for one message, as far as it has named them.
//!
//! The size of a frame is agreed on at each login, and AMQP sends all properties of a message in one
//! frame. The largest body is not announced, and its default is another one in each version: the
//! broker closes the channel over a body that is larger, and names the limit. It is known from then
//! on, until the connection is lost for another reason: the broker may have been configured anew.

use super::connection_loss::ConnectionLoss;
use super::fault;

/// The frame size that the relay asks for. It bounds the properties of a message; a connection of
/// lapin buffers 32 frames in each direction, which would be 8 MiB with the broker's own 128 KiB.
pub const FRAME_BYTES_MAX: u32 = 32 * 1024;
/// Less leaves a dead letter no room for what it must say. RabbitMQ 4.1 and later agree on no less.
pub const FRAME_BYTES_MIN: usize = 8 * 1024;
/// The broker adds headers when it delivers a message (`x-delivery-count`, `x-stream-offset`), and
/// many a client refuses a frame that is larger than was agreed.
const ADDED_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub frame_bytes: usize,
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { frame_bytes: FRAME_BYTES_MAX as usize, body_bytes: usize::MAX }
    }
}

/// Why a message is not sent.
#[derive(Debug)]
pub struct Excess {
    pub class: &'static str,
    pub reason: String,
    pub mend: &'static str,
}

impl Limits {
    /// The most bytes of the frame with the properties of a message.
    pub fn properties_bytes(&self) -> usize {
        self.frame_bytes.saturating_sub(ADDED_BYTES)
    }

    /// Why a message with properties and a body of these sizes is not sent, if it is not.
    pub fn excess(&self, properties_bytes: usize, body_bytes: usize) -> Option<Excess> {
        let (room, frame) = (self.properties_bytes(), self.frame_bytes);
        if properties_bytes > room {
            return Some(Excess {
                class: fault::HEADERS_TOO_LARGE,
                reason: format!(
                    "key, headers and other properties have {properties_bytes} bytes, and a frame of {frame} bytes (frame_max) has room for {room}"
                ),
                mend: "carry less in headers: correct [route], or the row's own headers; where frame_max in rabbitmq.conf is below 32768, raise it",
            });
        }
        let most = self.body_bytes;
        (body_bytes > most).then(|| Excess {
            class: fault::MESSAGE_TOO_LARGE,
            reason: format!(
                "the body has {body_bytes} bytes, and the broker takes {most} (max_message_size)"
            ),
            mend: "write a smaller payload, or raise max_message_size in rabbitmq.conf; its default is 16777216 from RabbitMQ 4.0 on",
        })
    }

    /// The limits that are known once the connection is lost.
    pub fn after(self, loss: &ConnectionLoss) -> Limits {
        Limits { body_bytes: loss.body_bytes_max().unwrap_or(usize::MAX), ..self }
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;

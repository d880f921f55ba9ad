//! Meaning of lapin's errors for a connection.

use lapin::{ChannelState, ErrorKind};

use super::connection_loss::ConnectionLoss;
use super::fault::{FRAME_ERROR, UNKNOWN_CODE};

/// How lapin ends a channel that the broker closed with a code that lapin does not know.
const CLOSED_WITHOUT_CODE: &str = "channel.close-ok sent";
/// In lapin's own text when the broker has sent a frame that is too large: RabbitMQ sends headers
/// in one frame, also if that is larger than was agreed.
const LARGE_FRAME: &str = "frame too large";

pub(super) fn loss_of(error: lapin::Error) -> ConnectionLoss {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::ProtocolError(refusal)
            if refusal.get_id() == FRAME_ERROR
                && refusal.get_message().as_str().starts_with(LARGE_FRAME) =>
        {
            ConnectionLoss { is_garbled: true, ..ConnectionLoss::of(text) }
        }
        ErrorKind::ProtocolError(refusal) => {
            ConnectionLoss::refused(refusal.get_id(), refusal.get_message().as_str())
        }
        ErrorKind::InvalidChannelState(ChannelState::Closing, CLOSED_WITHOUT_CODE) => {
            let text = "the channel was closed with a code that is not known";
            ConnectionLoss::refused(UNKNOWN_CODE, text)
        }
        ErrorKind::IOError(io) | ErrorKind::RuntimeShutdownError(io) => {
            ConnectionLoss::of(io.to_string())
        }
        ErrorKind::MissingHeartbeatError => {
            ConnectionLoss::of("nothing was heard for two heartbeats")
        }
        ErrorKind::ParsingError(_) => {
            ConnectionLoss { is_garbled: true, ..ConnectionLoss::of(text) }
        }
        // After any other error the state of the connection is unknown.
        _ => ConnectionLoss::of(text),
    }
}

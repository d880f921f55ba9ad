//! How one event comes in: recognised, offered to the sink, and admitted when it was taken.

use super::faults;
use crate::delivery::admitted::Admitted;
use crate::delivery::window::Window;
use crate::error::Fault;
use crate::lsn::Lsn;
use crate::message::Outbound;
use crate::outbox::{EventError, Transaction};
use crate::sink::{Disposition, Refused, Sink};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is done with.
    Yes,
    /// It is done with, and the server wants to hear from us.
    ReplyWanted,
    /// There is no room for it; offer it again.
    Full,
    /// It can be read from a stream in text mode only.
    TextWanted,
    /// The publication has changed: look at it before going on.
    LookAgain,
    /// The sink has failed as a whole.
    SinkBroken,
}

/// What becomes of the next event before it is even looked at; nothing when it is new and there is
/// room for it.
#[inline]
pub(super) fn unless_new(admitted: &mut Admitted, window: &mut Window) -> Option<Taken> {
    if admitted.is_repeat() {
        admitted.advance();
        return Some(Taken::Yes);
    }
    if !window.has_room() {
        return Some(Taken::Full);
    }
    if window.next_is_confirmed() {
        window.pass_over();
        admitted.advance();
        return Some(Taken::Yes);
    }
    None
}

/// Offers an event to the sink, and admits it when the sink has taken it.
#[inline]
pub(super) fn hand_over(
    event: &Outbound<'_>,
    window: &mut Window,
    admitted: &mut Admitted,
    sink: &mut dyn Sink,
) -> Result<Taken, Fault> {
    match sink.publish(window.next(), event) {
        Ok(()) => {
            window.admit(event.size_bytes(), event.commit_unix_us);
            admitted.advance();
            Ok(Taken::Yes)
        }
        Err(Refused::Full) => Ok(Taken::Full),
        Err(Refused::Failed(failure)) if failure.disposition == Disposition::Outage => {
            Ok(Taken::SinkBroken)
        }
        Err(Refused::Failed(failure)) => {
            let lsn = admitted.next().map_or(Lsn::ZERO, |position| position.commit_lsn);
            Err(faults::refused(&failure, lsn, 1))
        }
    }
}

pub(super) fn unpublishable(error: &EventError, transaction: &Transaction) -> Fault {
    faults::unpublishable(error.class(), &error.to_string(), transaction.commit_lsn())
}

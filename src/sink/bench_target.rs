//! A destination of one's own for a while: made, read as events come, and removed. `compare` measures
//! through it, so nothing of the user's is written to or read.

use std::time::{Duration, Instant};

use crate::base::error::{Exit, Fault};

/// A destination that was made, with a consumer on it.
pub trait Scratch: Send {
    /// The value of `sink.kind`.
    fn kind(&self) -> &'static str;

    /// Where the broker is, without credentials.
    fn place(&self) -> String;

    /// The next event, waiting for it at most `patience`. What comes later than it could is the
    /// broker's doing and not ours: events are fetched one by one as they come.
    fn consume(&mut self, patience: Duration) -> Result<Option<Arrival>, Fault>;
}

/// An event at a consumer.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When it came.
    pub at: Instant,
    /// Its value.
    pub value: Vec<u8>,
}

/// For brokers that nobody reads from.
pub(super) fn impossible() -> Fault {
    Fault::new(
        Exit::Usage,
        "sink.no-scratch",
        "this sink has no broker from which a consumer could read",
        "sink.kind",
        "sink.kind = \"kafka\" or \"rabbitmq\"",
    )
}

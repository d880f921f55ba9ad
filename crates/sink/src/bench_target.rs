//! A temporary topic, or exchange and queue, through which `compare` measures: nothing of the
//! user's is written to or read.

use std::time::{Duration, Instant};

use walrelay_base::error::{Exit, Fault};

/// A bench target that exists, with a consumer on it.
pub trait BenchTarget: Send {
    /// The value of `sink.kind`.
    fn kind(&self) -> &'static str;

    /// The address of the broker, without credentials.
    fn place(&self) -> String;

    /// The next event, waiting at most `patience`. The consumer fetches without batching, so that
    /// the time of arrival is the broker's and not the consumer's.
    fn consume(&mut self, patience: Duration) -> Result<Option<Arrival>, Fault>;
}

#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub value: Vec<u8>,
}

/// The fault of a sink without bench targets.
pub fn unsupported() -> Fault {
    Fault::new(
        Exit::Usage,
        "sink.no-scratch",
        "compare measures through a broker, and cannot with this sink",
        "sink.kind",
        "choose another sink.kind, for example \"kafka\"",
    )
}

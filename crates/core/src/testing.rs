//! Parts that unit tests share.

use std::time::{Duration, Instant};

use crate::base::event::{Outbound, Sequence};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::{PublishError, Sink, SinkReport};

/// Takes every event and confirms none.
pub(crate) struct IdleSink;

impl Sink for IdleSink {
    fn publish(&mut self, _: Sequence, _: &Outbound<'_>) -> Result<(), PublishError> {
        Ok(())
    }

    fn poll(&mut self, _: Instant, _: Duration, _: &mut Vec<SinkReport>) {}

    fn retry(&mut self, _: Sequence) {}

    fn replace_with_dead_letter(&mut self, _: Sequence, _: &DeadLetterWriter, _: &DeadLetterCause) {
    }
}

/// How much a test repeats: `usual` in every run, `soak` with `WALRELAY_SOAK=1` (`make soak`).
pub(crate) fn volume<T>(usual: T, soak: T) -> T {
    if std::env::var_os("WALRELAY_SOAK").is_some_and(|value| value == "1") { soak } else { usual }
}

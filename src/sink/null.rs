//! A sink that confirms everything and keeps nothing: what is left is the cost of the source.

use std::time::Duration;

use super::{News, Refused, Sink};
use crate::message::{Outbound, Sequence};

/// Confirms at the next poll.
#[derive(Debug, Default)]
pub struct NullSink {
    confirmed: Vec<Sequence>,
}

impl Sink for NullSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        std::hint::black_box(event);
        self.confirmed.push(sequence);
        Ok(())
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<News>) {
        if self.confirmed.is_empty() {
            std::thread::sleep(patience);
        }
        news.extend(self.confirmed.drain(..).map(News::Confirmed));
    }
}

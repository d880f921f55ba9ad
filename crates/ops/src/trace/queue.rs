//! Finished spans on their way from the data thread to the exporter. Bounded: a span for which there
//! is no room is dropped and counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::span::FinishedSpan;
use crate::metrics::Metrics;
use walrelay_base::lock::locked;

/// Spans that wait; one has some hundred bytes.
const SPANS_MAX: usize = 8192;
/// Most spans in one request.
pub(super) const BATCH_SPANS_MAX: usize = 512;

pub(super) struct SpanQueue {
    spans: Mutex<VecDeque<FinishedSpan>>,
    /// There are enough spans for a batch, or the queue was closed.
    is_due: Notify,
    is_closed: watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

impl SpanQueue {
    pub(super) fn new(metrics: Arc<Metrics>) -> SpanQueue {
        let is_closed = watch::Sender::new(false);
        SpanQueue { spans: Mutex::default(), is_due: Notify::new(), is_closed, metrics }
    }

    /// Called on the data thread. The exporter is woken once for each batch.
    pub(super) fn push(&self, span: FinishedSpan) {
        let mut spans = locked(&self.spans);
        if spans.len() == SPANS_MAX {
            self.metrics.spans_dropped.inc();
            return;
        }
        spans.push_back(span);
        if spans.len() == BATCH_SPANS_MAX {
            self.is_due.notify_one();
        }
    }

    /// No more spans come.
    pub(super) fn close(&self) {
        self.is_closed.send_replace(true);
        self.is_due.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Moves the oldest spans into `batch`, which is empty.
    pub(super) fn take(&self, batch: &mut Vec<FinishedSpan>) {
        let mut spans = locked(&self.spans);
        let count = spans.len().min(BATCH_SPANS_MAX);
        batch.extend(spans.drain(..count));
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.spans).len()
    }

    /// Waits until a batch is full, until the queue is closed, or at most so long.
    pub(super) async fn wait(&self, at_most: Duration) {
        let _timed_out = timeout(at_most, self.is_due.notified()).await.is_err();
    }

    /// Waits until the queue is closed.
    pub(super) async fn closed(&self) {
        // Its sender is in this queue, so it cannot fail.
        let _closed = self.is_closed.subscribe().wait_for(|closed| *closed).await.is_ok();
    }
}

//! A message that a broker has handed out, and what the broker knows of it meanwhile.
//!
//! The core begins a delivery before it does anything with the message, and settles it when the
//! message is done with: processed, or its copy confirmed. A delivery that is dropped otherwise
//! leaves the message to be delivered again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::message::Message;

/// All deliveries of one assignment of a partition, or of one channel.
pub(crate) struct Custody<M> {
    is_revoked: AtomicBool,
    /// Deliveries that have begun and are not dropped.
    running: AtomicUsize,
    /// Bounded by what the broker hands out before it is settled.
    settled: UnboundedSender<M>,
    on_drop: Box<dyn Fn() + Send + Sync>,
}

impl<M> Custody<M> {
    /// `on_drop` is called after each delivery. The receiver gets the marks of those that are settled.
    pub(crate) fn new(
        on_drop: impl Fn() + Send + Sync + 'static,
    ) -> (Arc<Custody<M>>, UnboundedReceiver<M>) {
        let (settled, marks) = unbounded_channel();
        let (is_revoked, running) = (AtomicBool::new(false), AtomicUsize::new(0));
        (Arc::new(Custody { is_revoked, running, settled, on_drop: Box::new(on_drop) }), marks)
    }

    /// From now on nothing begins: the broker delivers again what is not settled, or the inbox stops.
    pub(crate) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }
}

pub(crate) struct Delivery<M> {
    pub(crate) message: Message,
    /// Stands for the message at its broker: an offset, or a delivery tag.
    pub(crate) mark: M,
    custody: Arc<Custody<M>>,
    has_begun: bool,
}

impl<M> Delivery<M> {
    pub(crate) fn new(message: Message, mark: M, custody: &Arc<Custody<M>>) -> Delivery<M> {
        Delivery { message, mark, custody: Arc::clone(custody), has_begun: false }
    }

    /// The work begins; false if the broker has taken the delivery back. From then on the broker
    /// waits for its end when it must give the delivery up, within a bound.
    pub(crate) fn begin(&mut self) -> bool {
        // Counted first: whoever revokes and then sees no count can be sure that none begins.
        self.custody.running.fetch_add(1, Ordering::SeqCst);
        self.has_begun = true;
        self.is_wanted()
    }

    /// False once the delivery was taken back, or the inbox stops: then the core gives up what
    /// may take long, and drops it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.custody.is_revoked.load(Ordering::SeqCst)
    }
}

impl<M: Copy> Delivery<M> {
    /// The message is done with: it may be acknowledged, or its offset committed.
    pub(crate) fn settle(self) {
        // Without a receiver the message comes again.
        let _gone = self.custody.settled.send(self.mark).is_err();
    }
}

impl<M> Drop for Delivery<M> {
    fn drop(&mut self) {
        if self.has_begun {
            self.custody.running.fetch_sub(1, Ordering::SeqCst);
        }
        (self.custody.on_drop)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Received, ReplayTrust};

    #[test]
    fn after_the_revocation_nothing_begins_and_what_runs_is_known() {
        let (sender, dropped) = std::sync::mpsc::channel();
        let (custody, mut settled) = Custody::new(move || sender.send(()).unwrap());
        let delivery = |mark| {
            let message = Message::original(Received::default(), ReplayTrust::Nothing);
            Delivery::new(message, mark, &custody)
        };
        let (mut runs, mut late) = (delivery(1), delivery(2));
        assert!(runs.begin() && custody.is_running());
        custody.revoke();
        assert!(!late.begin());
        drop(late);
        assert!(custody.is_running() && !runs.is_wanted());
        runs.settle();
        assert!(!custody.is_running());
        assert_eq!((settled.try_recv(), settled.try_recv().is_err()), (Ok(1), true));
        assert_eq!(dropped.try_iter().count(), 2);
    }
}

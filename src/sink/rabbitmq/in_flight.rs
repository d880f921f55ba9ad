//! The publishes in flight on one channel.
//!
//! lapin completes confirms on a thread of its own, in the order of the broker's answers. Each
//! publish has a waker that notes its completion at that moment, so that a batch taken from the
//! notes never leaves out a publish that completed before one of the batch. [`super::returns`]
//! relies on that.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use lapin::options::BasicPublishOptions;
use lapin::{Channel, Confirmation};
use tokio::sync::Notify;

use super::message::{AmqpMessage, short};
use super::returns::{CompletedConfirm, PublishOutcome, ReturnedMessage, Returns};
use crate::base::event::Sequence;

type Publish<'c> = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send + 'c>>;

/// The slots that were woken, in order.
#[derive(Debug, Default)]
struct WokenSlots {
    slots: Mutex<VecDeque<usize>>,
    notify: Notify,
}

struct SlotWaker {
    slot: usize,
    woken: Arc<WokenSlots>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<SlotWaker>) {
        self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.slot);
        self.woken.notify.notify_one();
    }
}

/// One publish. The waker is reused for the next publish in this slot.
struct PublishSlot<'c> {
    publish: Option<Publish<'c>>,
    waker: Waker,
    sequence: Sequence,
    id: String,
    sent_at: Instant,
}

#[derive(Default)]
pub(super) struct PublishesInFlight<'c> {
    slots: Vec<PublishSlot<'c>>,
    free: Vec<usize>,
    woken: Arc<WokenSlots>,
    completed: Vec<CompletedConfirm>,
    returns: Returns,
}

impl<'c> PublishesInFlight<'c> {
    /// Sends a message behind all that were sent before it.
    pub(super) fn send(
        &mut self,
        channel: &'c Channel,
        sequence: Sequence,
        message: Arc<AmqpMessage>,
    ) -> lapin::Result<()> {
        let id = message.id().to_owned();
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let publish = async move {
            let (exchange, key) = (short(message.exchange()), short(message.routing_key()));
            let properties = message.properties();
            channel.basic_publish(exchange, key, options, message.body(), properties).await?.await
        };
        self.begin(sequence, id, Box::pin(publish))
    }

    fn begin(&mut self, sequence: Sequence, id: String, publish: Publish<'c>) -> lapin::Result<()> {
        let (publish, sent_at) = (Some(publish), Instant::now());
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if let Some(free) = self.slots.get_mut(slot) {
            let waker = free.waker.clone();
            *free = PublishSlot { publish, waker, sequence, id, sent_at };
        } else {
            let waker = Waker::from(Arc::new(SlotWaker { slot, woken: Arc::clone(&self.woken) }));
            self.slots.push(PublishSlot { publish, waker, sequence, id, sent_at });
        }
        // The first poll sends it: the order of delivery tags is the order of calls.
        self.advance(slot)
    }

    /// Waits until [`PublishesInFlight::collect`] has something to do.
    pub(super) async fn woken(&self) {
        self.woken.notify.notified().await;
    }

    /// Returns the outcomes that are decided, and the error if no more will follow.
    ///
    /// A failed publish does not end the loop: a note may be older than the completion that it
    /// leads to, so behind a failed publish there may be notes of confirms that came before it.
    pub(super) fn collect(&mut self) -> (Vec<(Sequence, PublishOutcome)>, lapin::Result<()>) {
        let mut end = Ok(());
        loop {
            let mut notes = self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let woken = std::mem::take(&mut *notes);
            drop(notes);
            if woken.is_empty() {
                return (self.returns.settle(std::mem::take(&mut self.completed)), end);
            }
            for slot in woken {
                let advanced = self.advance(slot);
                end = end.and(advanced);
            }
        }
    }

    /// When the oldest publish in flight was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let in_flight = self.slots.iter().filter(|slot| slot.publish.is_some());
        in_flight.map(|slot| slot.sent_at).min()
    }

    fn advance(&mut self, slot: usize) -> lapin::Result<()> {
        let PublishSlot { publish, waker, sequence, id, .. } = &mut self.slots[slot];
        let Some(pending) = publish else { return Ok(()) };
        let mut context = Context::from_waker(waker);
        let Poll::Ready(confirmation) = pending.as_mut().poll(&mut context) else { return Ok(()) };
        *publish = None;
        self.free.push(slot);
        let (acked, carried) = match confirmation? {
            Confirmation::Ack(carried) => (true, carried),
            Confirmation::Nack(carried) => (false, carried),
            // Only without confirm mode, which the channel is in.
            Confirmation::NotRequested => (false, None),
        };
        let carried = carried.map(|message| ReturnedMessage {
            id: message
                .properties
                .message_id()
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            code: message.reply_code,
            text: message.reply_text.to_string(),
        });
        let (sequence, id) = (*sequence, std::mem::take(id));
        self.completed.push(CompletedConfirm { sequence, id, acked, carried });
        Ok(())
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;

//! Publishes in flight on one channel, in the order in which they end.
//!
//! lapin completes confirms on a thread of its own, in the order of what the broker says. Each
//! publish has a waker that notes its completion there and then, so that a batch taken from the
//! notes never leaves out what was completed before one of its members. [`super::returns`] rests
//! on that.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::{Channel, Confirmation};
use tokio::sync::Notify;

use super::message::{AmqpMessage, short};
use super::returns::{CompletedConfirm, PublishOutcome, ReturnedMessage, Returns};
use crate::base::event::Sequence;

type Publish<'c> = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send + 'c>>;

/// Slots that were woken, in order.
#[derive(Debug, Default)]
struct WokenSlots {
    slots: Mutex<VecDeque<usize>>,
    notify: Notify,
}

impl WokenSlots {
    fn take(&self) -> VecDeque<usize> {
        std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Notes that its publish has got further.
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

/// One publish; its waker is used again and again.
struct PublishSlot<'c> {
    publish: Option<Publish<'c>>,
    waker: Waker,
    sequence: Sequence,
    id: String,
    sent_at: Instant,
}

/// The publishes in flight.
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
        let waker = match self.slots.get(slot) {
            Some(used) => used.waker.clone(),
            None => Waker::from(Arc::new(SlotWaker { slot, woken: Arc::clone(&self.woken) })),
        };
        let begun = PublishSlot { publish, waker, sequence, id, sent_at };
        match self.slots.get_mut(slot) {
            Some(used) => *used = begun,
            None => self.slots.push(begun),
        }
        // The first poll puts it on the wire: the order of delivery tags is the order of calls.
        self.advance(slot)
    }

    /// When [`PublishesInFlight::collect`] has something to do.
    pub(super) async fn woken(&self) {
        self.woken.notify.notified().await;
    }

    /// What became of everything that was completed; and why there will be no more, if that is so.
    ///
    /// Nobody is left out for another's rejection: a note may be older than the completion that it
    /// leads to, so behind a rejected publish there may be notes of confirms that came before.
    pub(super) fn collect(&mut self) -> (Vec<(Sequence, PublishOutcome)>, lapin::Result<()>) {
        let mut end = Ok(());
        loop {
            let woken = self.woken.take();
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
        let it = &mut self.slots[slot];
        let Some(publish) = &mut it.publish else { return Ok(()) };
        let mut context = Context::from_waker(&it.waker);
        let Poll::Ready(confirmation) = publish.as_mut().poll(&mut context) else { return Ok(()) };
        it.publish = None;
        self.free.push(slot);
        let (acked, carried) = match confirmation? {
            Confirmation::Ack(carried) => (true, carried),
            Confirmation::Nack(carried) => (false, carried),
            // Only without confirm mode, which the channel is in.
            Confirmation::NotRequested => (false, None),
        };
        let (id, carried) = (std::mem::take(&mut it.id), carried.map(returned));
        self.completed.push(CompletedConfirm { sequence: it.sequence, id, acked, carried });
        Ok(())
    }
}

fn returned(message: BasicReturnMessage) -> ReturnedMessage {
    let id = message.delivery.properties.message_id();
    ReturnedMessage {
        id: id.as_ref().map(ToString::to_string).unwrap_or_default(),
        code: message.reply_code,
        text: message.reply_text.to_string(),
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;

//! Publishes under way on one channel, and the order in which they end.
//!
//! lapin completes confirms on a thread of its own, in the order of what the broker says. Each
//! publish has a ticket that notes its completion there and then, so that a batch taken from the
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

use super::message::{Message, short};
use super::returns::{Completion, Returned};
use crate::base::event::Sequence;

type Publish<'c> = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send + 'c>>;

/// Tickets that were called, in order.
#[derive(Debug)]
struct Called {
    slots: Mutex<VecDeque<usize>>,
    bell: Arc<Notify>,
}

/// Notes that its publish has got further.
struct Ticket {
    slot: usize,
    called: Arc<Called>,
}

impl Wake for Ticket {
    fn wake(self: Arc<Ticket>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Ticket>) {
        let mut slots = self.called.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push_back(self.slot);
        drop(slots);
        self.called.bell.notify_one();
    }
}

/// One publish; its ticket is used again and again.
struct Slot<'c> {
    publish: Option<Publish<'c>>,
    ticket: Waker,
    sequence: Sequence,
    id: String,
    sent_at: Instant,
}

/// The publishes under way.
pub(super) struct Confirms<'c> {
    slots: Vec<Slot<'c>>,
    free: Vec<usize>,
    called: Arc<Called>,
    batch: Vec<Completion>,
}

impl<'c> Confirms<'c> {
    /// None yet. The bell rings when [`Confirms::collect`] has something to do.
    pub(super) fn new(bell: &Arc<Notify>) -> Confirms<'c> {
        let called = Called { slots: Mutex::default(), bell: Arc::clone(bell) };
        Confirms {
            slots: Vec::new(),
            free: Vec::new(),
            called: Arc::new(called),
            batch: Vec::new(),
        }
    }

    /// Sends a message behind all that were sent before it.
    pub(super) fn send(
        &mut self,
        channel: &'c Channel,
        sequence: Sequence,
        message: Arc<Message>,
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
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.slots.len();
            let ticket = Arc::new(Ticket { slot, called: Arc::clone(&self.called) });
            let ticket = Waker::from(ticket);
            self.slots.push(Slot {
                publish: None,
                ticket,
                sequence,
                id: String::new(),
                sent_at: Instant::now(),
            });
            slot
        });
        let it = &mut self.slots[slot];
        (it.publish, it.sequence, it.id) = (Some(publish), sequence, id);
        it.sent_at = Instant::now();
        // The first poll puts it on the wire: the order of delivery tags is the order of calls.
        self.advance(slot)
    }

    /// Everything that was completed, leaving out nothing that was completed before it; and why
    /// there will be no more, if that is so.
    ///
    /// Nobody is left out for another's rejection: a note may be older than the completion that it
    /// leads to, so behind a rejected publish there may be notes of confirms that came before.
    pub(super) fn collect(&mut self) -> (Vec<Completion>, lapin::Result<()>) {
        let mut outcome = Ok(());
        loop {
            let called = {
                let mut slots = self.called.slots.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *slots)
            };
            if called.is_empty() {
                return (std::mem::take(&mut self.batch), outcome);
            }
            for slot in called {
                let advanced = self.advance(slot);
                outcome = outcome.and(advanced);
            }
        }
    }

    /// When the oldest publish under way was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let under_way = self.slots.iter().filter(|slot| slot.publish.is_some());
        under_way.map(|slot| slot.sent_at).min()
    }

    fn advance(&mut self, slot: usize) -> lapin::Result<()> {
        let it = &mut self.slots[slot];
        let Some(publish) = &mut it.publish else { return Ok(()) };
        let mut context = Context::from_waker(&it.ticket);
        let Poll::Ready(confirmation) = publish.as_mut().poll(&mut context) else { return Ok(()) };
        it.publish = None;
        self.free.push(slot);
        let (acked, carried) = match confirmation? {
            Confirmation::Ack(carried) => (true, carried),
            Confirmation::Nack(carried) => (false, carried),
            // Only without confirm mode, which the channel is in.
            Confirmation::NotRequested => (false, None),
        };
        self.batch.push(Completion {
            sequence: it.sequence,
            id: std::mem::take(&mut it.id),
            acked,
            carried: carried.map(returned),
        });
        Ok(())
    }
}

fn returned(message: BasicReturnMessage) -> Returned {
    let id = message.delivery.properties.message_id();
    Returned {
        id: id.as_ref().map(ToString::to_string).unwrap_or_default(),
        code: message.reply_code,
        text: message.reply_text.to_string(),
    }
}

#[cfg(test)]
#[path = "confirms_tests.rs"]
mod tests;

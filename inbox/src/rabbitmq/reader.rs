//! Consumes the queue SERVICE.
//!
//! The broker sends at most `prefetch` messages ahead, in the order of the queue, and to one consumer
//! of all. A message stays at the broker until it is acknowledged. When the channel ends, for
//! whatever reason, the broker delivers all of them again, in their order: what waits in a lane is
//! dropped there, and a handler that runs ends before the next delivery of its message begins, since
//! that waits in the same lane.
//!
//! lapin closes the connection at a message that it cannot read, and the broker sends it again. From
//! the second time on one message is sent at a time: all before it, and what was sent ahead together
//! with it, is settled, and it is the first of the queue when the inbox gives up.

use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::RabbitMq;
use super::connection::{CLOSE_WITHIN, Link, Loss, close, in_time, open, short};
use super::delivery::message;
use crate::broker::Stop;
use crate::delivery::{Custody, Delivery};
use crate::lanes::Lanes;
use crate::time::backoff;
use crate::{InboxError, Settings};

const TAG: &str = "inbox";
/// A message at which the connection is lost so often in a row is not readable.
const UNREADABLE_LOSSES_MAX: u32 = 5;

pub(super) async fn consume(
    rabbit: &RabbitMq,
    settings: &Settings,
    lanes: &Lanes<u64>,
    mut stop: Stop,
) -> Result<(), InboxError> {
    let mut backoff = backoff();
    let mut is_first = true;
    let mut unreadable_losses = 0;
    while !stop.is_requested() {
        // One at a time, what is in front of an unreadable message is handled before it is met again.
        let is_searching = unreadable_losses > 1;
        let prefetch = if is_searching { 1 } else { rabbit.prefetch };
        let opened = tokio::select! {
            opened = Reader::open(rabbit, settings, prefetch) => opened,
            () = stop.requested() => return Ok(()),
        };
        let (loss, has_settled) = match opened {
            Ok(mut reader) => {
                is_first = false;
                let search_max = is_searching.then_some(rabbit.prefetch);
                match reader.run(lanes, &mut stop, settings, search_max).await {
                    Ok(()) => return Ok(()),
                    Err(loss) => (loss, reader.acks.are_sent),
                }
            }
            // A mistake that time does not mend is told at the start.
            Err(loss) if is_first && loss.is_refusal() => {
                let what = format!("reading queue {}, which Inbox::init makes", settings.service);
                return Err(InboxError::broker(what, loss.text));
            }
            // What answers may be no broker: that says nothing of any message.
            Err(loss) => (Loss { is_unreadable: false, ..loss }, false),
        };
        // A connection that is accepted and lost at once is no sign of health.
        if loss.is_unreadable {
            unreadable_losses += 1;
        } else if has_settled {
            unreadable_losses = 0;
            backoff.succeeded();
        }
        let (consumer, reason) = (&settings.service, &loss.explanation());
        if loss.is_unreadable {
            let what = "a message cannot be read: a header's name, the type or the id is not \
                        UTF-8, or its headers are larger than frame_max";
            tracing::warn!(code = "inbox.unreadable-message", consumer, reason, "{what}");
        } else {
            tracing::warn!(code = "inbox.rabbitmq-away", consumer, reason, "connecting again");
        }
        if unreadable_losses >= UNREADABLE_LOSSES_MAX {
            return Err(unreadable(consumer, reason));
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = stop.requested() => {}
        }
    }
    Ok(())
}

/// Neither `rabbitmqadmin get` nor the management page can take it away: the broker refuses
/// `basic.get` on a queue with a single active consumer.
fn unreadable(queue: &str, reason: &str) -> InboxError {
    let what = format!(
        "the first message of queue {queue} cannot be read (a header's name, its type or its id is \
         not UTF-8, or its headers are larger than frame_max, which can be raised in rabbitmq.conf): \
         stop all instances, take it away with `amqp-consume \
         --url=amqp://USER:PASSWORD@HOST -q {queue} -p 1 -c 1 cat` (package amqp-tools), which prints its \
         body, and start them again"
    );
    InboxError::broker(what, reason)
}

/// Where the inbox is dropped instead of stopped, this is closed before lapin cancels the reading, for
/// the reason of [`Reader::finish`]. lapin itself would keep it open where the broker has not yet said
/// that the reading begins.
struct ReadConnection(Link);

impl Drop for ReadConnection {
    fn drop(&mut self) {
        let _sent = self.0.close(200, "".into()).now_or_never();
    }
}

/// One channel that consumes.
struct Reader {
    /// The first field, so that it is dropped first.
    connection: ReadConnection,
    deliveries: Consumer,
    custody: Arc<Custody<u64>>,
    /// Notified when a delivery is dropped.
    dropped: Arc<Notify>,
    acks: Acks,
}

impl Reader {
    async fn open(rabbit: &RabbitMq, settings: &Settings, prefetch: u16) -> Result<Reader, Loss> {
        let connection = ReadConnection(open(rabbit, &settings.service, "inbox").await?);
        let begin = async {
            let channel = connection.0.create_channel().await?;
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let (queue, options) = (short(&settings.service), BasicConsumeOptions::default());
            let consuming =
                channel.basic_consume(queue, short(TAG), options, FieldTable::default());
            Ok::<_, lapin::Error>((consuming.await?, channel))
        };
        let missing = format!("RabbitMQ gave no answer to reading queue {}", settings.service);
        let begun = in_time(begin, &missing).await.inspect_err(|_| connection.0.cut());
        let (deliveries, channel) = begun?;
        let dropped = Arc::new(Notify::new());
        let changed = Arc::clone(&dropped);
        let (custody, settled) = Custody::new(move || changed.notify_waiters());
        let acks = Acks { channel, settled, are_sent: false };
        Ok(Reader { connection, deliveries, custody, dropped, acks })
    }

    /// Reads until a stop is requested, or the channel is lost.
    async fn run(
        &mut self,
        lanes: &Lanes<u64>,
        stop: &mut Stop,
        settings: &Settings,
        search_max: Option<u16>,
    ) -> Result<(), Loss> {
        let service = &settings.service;
        let reading = read(&mut self.deliveries, &self.custody, lanes, service, search_max);
        let reading = async {
            tokio::select! {
                loss = reading => Err(loss),
                () = stop.requested() => Ok(()),
            }
        };
        let read = self.acks.send_during(reading).await;
        self.custody.revoke();
        if read.is_ok() {
            self.finish(settings).await;
        }
        close(&self.connection.0).await;
        read
    }

    /// Waits for what has begun. Until the channel is closed no other instance is sent anything: if
    /// the reading were cancelled first, the next instance would begin behind what is with this one.
    /// Closing the channel is answered behind all acknowledgements.
    async fn finish(&mut self, settings: &Settings) {
        let idle = async {
            loop {
                let dropped = self.dropped.notified();
                if !self.custody.is_running() {
                    return;
                }
                dropped.await;
            }
        };
        if timeout(settings.stop_within, self.acks.send_during(idle)).await.is_err() {
            let consumer = &settings.service;
            tracing::warn!(code = "inbox.handler-late", consumer, "it is not waited for");
        }
        self.acks.settled.close();
        let closed = async {
            self.acks.send().await;
            self.acks.channel.close(200, "".into()).await
        };
        let _in_time = timeout(CLOSE_WITHIN, closed).await.is_ok();
    }
}

/// Offers what is delivered to the lanes, until the channel is lost. Who looks for an unreadable
/// message, one at a time, has passed its place after `search_max`.
async fn read(
    deliveries: &mut Consumer,
    custody: &Arc<Custody<u64>>,
    lanes: &Lanes<u64>,
    service: &str,
    search_max: Option<u16>,
) -> Loss {
    let mut count = 0_u64;
    loop {
        match deliveries.next().await {
            Some(Ok(delivery)) => {
                count += 1;
                if search_max.is_some_and(|most| count > most.into()) {
                    return Loss::of("the message that could not be read is gone");
                }
                let tag = delivery.delivery_tag;
                lanes.put(Delivery::new(message(delivery, service), tag, custody)).await;
            }
            Some(Err(error)) => return error.into(),
            None => return Loss::of("the broker ended the reading"),
        }
    }
}

/// Acknowledges what is settled.
struct Acks {
    channel: Channel,
    /// Delivery tags.
    settled: UnboundedReceiver<u64>,
    are_sent: bool,
}

impl Acks {
    /// For as long as something else goes on. If the channel is lost, that says why.
    async fn send_during<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::select! {
            output = other => output,
            output = async { self.send().await; std::future::pending().await } => output,
        }
    }

    /// Until the last one is sent, or the channel is lost.
    async fn send(&mut self) {
        while let Some(tag) = self.settled.recv().await {
            self.are_sent = true;
            if self.channel.basic_ack(tag, BasicAckOptions::default()).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::silent_node;
    use super::*;

    #[tokio::test]
    async fn a_reading_that_does_not_begin_is_a_loss_that_names_the_queue() {
        let ((node, ended), settings) = (silent_node(), Settings::new("billing", ""));
        let opening = timeout(Duration::from_secs(30), Reader::open(&node, &settings, 1));
        let loss = opening.await.expect("it ends").err().expect("nothing to read");
        let told = "RabbitMQ gave no answer to reading queue billing within 10 s";
        assert_eq!(loss.text, told);
        // THEN nothing is left of it
        let end = tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(60)));
        end.await.expect("no panic").expect("the connection ends");
    }
}

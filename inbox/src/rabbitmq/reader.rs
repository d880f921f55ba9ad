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
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::RabbitMq;
use super::connection::{Link, Loss, close, in_time, open, short};
use super::delivery::{AckToken, ChannelState, NO_TAG, message};
use crate::broker::{Delivery, Stop};
use crate::lanes::Lanes;
use crate::time::backoff;
use crate::{InboxError, Settings};

const TAG: &str = "inbox";
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// A message at which the connection is lost so often in a row is not readable.
const UNREADABLE_LOSSES_MAX: u32 = 5;

pub(super) async fn consume(
    rabbit: &RabbitMq,
    settings: &Settings,
    lanes: Arc<Lanes<AckToken>>,
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
            Ok(reader) => {
                is_first = false;
                let state = Arc::clone(&reader.state);
                let search_max = is_searching.then_some(rabbit.prefetch);
                match reader.run(&lanes, &mut stop, settings, search_max).await {
                    Ok(()) => return Ok(()),
                    Err(loss) => (loss, state.has_settled()),
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
        let (consumer, reason) = (&settings.service, &loss.text);
        if loss.is_unreadable {
            let what = "a message cannot be read: a header's name is not UTF-8, or its headers are \
                        larger than frame_max";
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
    channel: Channel,
    deliveries: Consumer,
    state: Arc<ChannelState>,
    acknowledging: JoinHandle<()>,
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
        let (acks, settled) = unbounded_channel();
        let state = ChannelState::new(acks);
        let acknowledging = tokio::spawn(acknowledge(channel.clone(), settled));
        Ok(Reader { connection, channel, deliveries, state, acknowledging })
    }

    /// Reads until a stop is requested, or the channel is lost.
    async fn run(
        mut self,
        lanes: &Lanes<AckToken>,
        stop: &mut Stop,
        settings: &Settings,
        search_max: Option<u16>,
    ) -> Result<(), Loss> {
        let service = &settings.service;
        let read = tokio::select! {
            loss = read(&mut self.deliveries, &self.state, lanes, service, search_max) => Err(loss),
            () = stop.requested() => Ok(()),
        };
        match read {
            Err(_) => self.state.lost(),
            Ok(()) => self.finish(settings.stop_within).await,
        }
        self.acknowledging.abort();
        close(&self.connection.0).await;
        read
    }

    /// Waits for what has begun. Until the channel is closed no other instance is sent anything: if
    /// the reading were cancelled first, the next instance would begin behind what is with this one.
    /// Closing the channel is answered behind all acknowledgements.
    async fn finish(&mut self, stop_within: Duration) {
        self.state.stop();
        if timeout(stop_within, self.state.idle()).await.is_err() {
            tracing::warn!(code = "inbox.handler-late", "it is not waited for");
        }
        self.state.end_acks();
        let closed = async {
            let _ended = (&mut self.acknowledging).await.is_ok();
            self.channel.close(200, "".into()).await
        };
        let _in_time = timeout(CLOSE_WITHIN, closed).await.is_ok();
    }
}

/// Offers what is delivered to the lanes, until the channel is lost. Who looks for an unreadable
/// message, one at a time, has passed its place after `search_max`.
async fn read(
    deliveries: &mut Consumer,
    state: &Arc<ChannelState>,
    lanes: &Lanes<AckToken>,
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
                let token = AckToken::new(state, delivery.delivery_tag);
                lanes.put(Delivery { message: message(delivery, service), token }).await;
            }
            Some(Err(error)) => return error.into(),
            None => return Loss::of("the broker ended the reading"),
        }
    }
}

async fn acknowledge(channel: Channel, mut settled: UnboundedReceiver<u64>) {
    while let Some(tag) = settled.recv().await {
        if tag == NO_TAG || channel.basic_ack(tag, BasicAckOptions::default()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
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

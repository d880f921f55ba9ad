//! Publishes copies. A copy counts as confirmed when the broker has acknowledged it and has not
//! returned it: what no queue takes is returned, and acknowledged all the same.
//!
//! lapin may attach a return to the confirm of another message, so a channel has one copy under way
//! at a time. Several channels take turns, by the key. A channel whose copy was not answered is of no
//! more use, and is dropped: its answer must not count for the next copy.

use std::sync::Arc;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::Mutex;
use walrelay_dead_letter::header::AMQP_HEADER_BYTES;

use super::connection::{Link, Loss, PRECONDITION_FAILED, in_time, open, short};
use super::{RabbitMq, dead_letter_exchange, retry_queue};
use crate::Settings;
use crate::broker::{Copies, Destination, Outgoing, Unconfirmed};
use crate::copies::fit;
use crate::time::unix_now;

/// Copies under way at once.
const CHANNELS: usize = 4;
const PERSISTENT: u8 = 2;
/// AMQP carries short strings of this many bytes.
const SHORT_BYTES_MAX: usize = 255;
/// Headers go in one frame together with the other properties, of which three are short strings.
const PROPERTIES_BYTES_MAX: usize = 1024;
/// The bytes that the broker adds to the headers of a copy that comes back from a retry level,
/// beside names: `x-death`, `x-first-death-…`, `x-last-death-…`, and counts of deliveries. They are
/// delivered in the same frame.
const DEATH_BYTES: usize = 400;
/// How often the name of the queue, which is that of its exchange, is in them.
const DEATH_NAMES: usize = 6;

pub(crate) struct RabbitCopies {
    rabbit: RabbitMq,
    settings: Settings,
    connection: Mutex<Option<Arc<Link>>>,
    channels: [Mutex<Option<CopyChannel>>; CHANNELS],
}

struct CopyChannel {
    channel: Channel,
    /// The size of a frame, as client and broker have agreed.
    frame_bytes_max: usize,
}

impl From<Loss> for Unconfirmed {
    fn from(loss: Loss) -> Unconfirmed {
        match loss.code {
            Some(PRECONDITION_FAILED) => Unconfirmed::Refused(loss.text),
            _ => Unconfirmed::Outage(loss.explanation()),
        }
    }
}

impl RabbitCopies {
    pub(super) fn new(rabbit: &RabbitMq, settings: &Settings) -> RabbitCopies {
        RabbitCopies {
            rabbit: rabbit.clone(),
            settings: settings.clone(),
            connection: Mutex::new(None),
            channels: [const { Mutex::const_new(None) }; CHANNELS],
        }
    }

    async fn channel(&self) -> Result<CopyChannel, Unconfirmed> {
        let mut current = self.connection.lock().await;
        let connection = match current.take().filter(|it| it.status().connected()) {
            Some(connection) => connection,
            None => Arc::new(open(&self.rabbit, &self.settings.service, "inbox copies").await?),
        };
        let connection = Arc::clone(current.insert(connection));
        let opening = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, Loss>(channel)
        };
        let opened = in_time(async { Ok::<_, Loss>(opening.await) }, "RabbitMQ opened no channel");
        // The next one is opened on another connection.
        let channel = opened.await.inspect_err(|_| {
            connection.cut();
            *current = None;
        })??;
        let frame_bytes_max = match connection.configuration().frame_max() {
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        Ok(CopyChannel { channel, frame_bytes_max })
    }

    fn exchange_of(&self, copy: &Outgoing<'_>) -> String {
        let service = &self.settings.service;
        match copy.destination {
            Destination::DeadLetters => dead_letter_exchange(service),
            Destination::Level { level, .. } => {
                let shard = copy.message.lane_hash() % u64::from(self.rabbit.shards);
                retry_queue(service, level, shard)
            }
        }
    }

    /// Publishes the copy, and waits for the confirm. The outer error is that of the channel.
    async fn send_on(
        &self,
        CopyChannel { channel, frame_bytes_max }: &CopyChannel,
        copy: &Outgoing<'_>,
    ) -> Result<Result<(), Unconfirmed>, Loss> {
        let exchange = self.exchange_of(copy);
        let properties = match properties_of(copy, &exchange, *frame_bytes_max) {
            Ok(properties) => properties,
            Err(refused) => return Ok(Err(refused)),
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (to, routing_key) = (short(&exchange), short(copy.message.topic()));
        let body = copy.value.as_deref().unwrap_or_default();
        let sent = channel.basic_publish(to, routing_key, options, body, properties);
        let answer = sent.await?.await?;
        let strays = channel.wait_for_confirms().await?;
        Ok(match answer {
            Confirmation::Ack(None) if strays.is_empty() => Ok(()),
            Confirmation::Ack(_) => {
                let what = format!("exchange {exchange} leads to no queue: Inbox::init makes it");
                Err(Unconfirmed::Outage(what))
            }
            Confirmation::Nack(_) | Confirmation::NotRequested => {
                Err(Unconfirmed::Outage("the broker did not take it".to_owned()))
            }
        })
    }
}

impl Copies for RabbitCopies {
    async fn send(&self, copy: &Outgoing<'_>) -> Result<(), Unconfirmed> {
        let slot = (copy.message.lane_hash() % CHANNELS as u64) as usize;
        let mut kept = self.channels[slot].lock().await;
        let opened = match kept.take().filter(|it| it.channel.status().connected()) {
            Some(opened) => opened,
            None => self.channel().await?,
        };
        let answer = self.send_on(&opened, copy).await?;
        // Kept again only when it has answered.
        *kept = Some(opened);
        answer
    }
}

fn properties_of(
    copy: &Outgoing<'_>,
    exchange: &str,
    frame_bytes_max: usize,
) -> Result<BasicProperties, Unconfirmed> {
    let message = copy.message;
    let added = match copy.destination {
        Destination::DeadLetters => 0,
        Destination::Level { .. } => {
            DEATH_BYTES + DEATH_NAMES * exchange.len() + message.topic().len()
        }
    };
    let headers_bytes_max = frame_bytes_max.saturating_sub(PROPERTIES_BYTES_MAX + added);
    let mut headers = copy.headers.clone();
    let has_dropped = fit(&mut headers, headers_bytes_max, AMQP_HEADER_BYTES);
    if has_dropped && copy.destination != Destination::DeadLetters {
        let what = format!(
            "the headers of the copy, and what the broker adds to them, do not fit into a frame of \
             {frame_bytes_max} bytes (frame_max)"
        );
        return Err(Unconfirmed::Refused(what));
    }
    let mut table = FieldTable::default();
    for (name, value) in headers.iter().filter(|(name, _)| fits(name)) {
        table.insert(short(name), AMQPValue::LongString(value.to_vec().into()));
    }
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_timestamp(unix_now().as_secs())
        .with_headers(table);
    if !message.id().is_empty() && fits(message.id()) {
        properties = properties.with_message_id(short(message.id()));
    }
    // The queue has a time, too: a copy waits for the shorter one, and behind those before it.
    if let Destination::Level { wait, .. } = copy.destination {
        properties = properties.with_expiration(short(&wait.as_millis().to_string()));
    }
    if let Some(event_type) = message.received.event_type.as_deref() {
        properties = properties.with_type(short(event_type));
    }
    if let Some(content_type) = message.content_type() {
        properties = properties.with_content_type(short(content_type));
    }
    Ok(properties)
}

fn fits(name: &str) -> bool {
    name.len() <= SHORT_BYTES_MAX
}

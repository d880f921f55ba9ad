//! Publishes copies. A copy counts as confirmed when the broker has acknowledged it and has not
//! returned it: what no queue takes is returned, and acknowledged all the same.
//!
//! lapin may attach a return to the confirm of another message, so a channel has one copy under way
//! at a time. Several channels take turns, by the key. A channel whose copy was not answered is of no
//! more use, and is dropped: its answer must not count for the next copy.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};

use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::Mutex;

use super::connection::{Loss, NOT_FOUND, PRECONDITION_FAILED, open, short};
use super::{RabbitMq, dead_letter_exchange, retry_queue, shard};
use crate::broker::{Copies, Destination, Outgoing, Refused};
use crate::settings::Plan;
use crate::time::{Backoff, unix_now};

/// Copies under way at once.
const CHANNELS: usize = 4;
const PERSISTENT: u8 = 2;
/// AMQP carries short strings of this many bytes.
const SHORT_BYTES_MAX: usize = 255;
/// Headers go in one frame, which has 128 KiB with the properties.
const HEADERS_BYTES_MAX: usize = 120 * 1024;
/// What AMQP adds to name and value of a header.
const HEADER_COST_BYTES: usize = 6;
const DLQ_PREFIX: &str = "dlq-";
/// `walrelay dlq` replays no dead letter that has it.
const HEADERS_DROPPED: &str = "dlq-headers-dropped";
const DROPPED_BYTES_MAX: usize = 2_000;
/// The broker may be short of memory or disk for long, and confirms nothing then.
const TELL_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct RabbitCopies {
    rabbit: RabbitMq,
    plan: Plan,
    connection: Mutex<Option<Arc<Connection>>>,
    channels: [Mutex<Option<Channel>>; CHANNELS],
}

/// Why a copy was not confirmed.
enum Unconfirmed {
    Refused(String),
    Outage(String),
}

impl From<Loss> for Unconfirmed {
    fn from(loss: Loss) -> Unconfirmed {
        match loss.code {
            Some(PRECONDITION_FAILED) => Unconfirmed::Refused(loss.text),
            Some(NOT_FOUND) => Unconfirmed::Outage(format!("{}: Inbox::init makes it", loss.text)),
            _ => Unconfirmed::Outage(loss.text),
        }
    }
}

impl From<lapin::Error> for Unconfirmed {
    fn from(error: lapin::Error) -> Unconfirmed {
        Loss::from(error).into()
    }
}

/// A copy as AMQP carries it.
struct AmqpCopy<'c> {
    exchange: String,
    routing_key: &'c str,
    properties: BasicProperties,
    body: &'c [u8],
}

impl RabbitCopies {
    pub(super) fn new(rabbit: &RabbitMq, plan: &Plan) -> RabbitCopies {
        RabbitCopies {
            rabbit: rabbit.clone(),
            plan: plan.clone(),
            connection: Mutex::new(None),
            channels: [const { Mutex::const_new(None) }; CHANNELS],
        }
    }

    async fn channel(&self) -> Result<Channel, Unconfirmed> {
        let mut current = self.connection.lock().await;
        let connection = match current.take().filter(|it| it.status().connected()) {
            Some(connection) => connection,
            None => Arc::new(open(&self.rabbit, &self.plan.service, "inbox copies").await?),
        };
        let connection = current.insert(connection);
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    async fn send(&self, slot: usize, copy: &AmqpCopy<'_>) -> Result<(), Unconfirmed> {
        let mut kept = self.channels[slot].lock().await;
        // Kept again only when it has answered.
        let channel = match kept.take().filter(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => self.channel().await?,
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (exchange, routing_key) = (short(&copy.exchange), short(copy.routing_key));
        let properties = copy.properties.clone();
        let sent = channel.basic_publish(exchange, routing_key, options, copy.body, properties);
        let answer = sent.await?.await?;
        let strays = channel.wait_for_confirms().await?;
        let returned = match answer {
            Confirmation::Ack(returned) => returned.is_some() || !strays.is_empty(),
            Confirmation::Nack(_) | Confirmation::NotRequested => {
                *kept = Some(channel);
                return Err(Unconfirmed::Outage("the broker did not take it".to_owned()));
            }
        };
        *kept = Some(channel);
        if returned {
            let what = format!("exchange {} leads to no queue", copy.exchange);
            return Err(Unconfirmed::Outage(format!("{what}: Inbox::init makes it")));
        }
        Ok(())
    }

    fn copy_of<'c>(&self, copy: &'c Outgoing<'_>) -> Result<AmqpCopy<'c>, Refused> {
        let (service, message) = (&self.plan.service, copy.message);
        let (exchange, headers) = match copy.destination {
            Destination::DeadLetters => (dead_letter_exchange(service), fitting(&copy.headers)),
            Destination::Level { name, .. } => {
                let shard = shard(message.key(), message.id(), self.rabbit.shards);
                let headers: Vec<(&str, &[u8])> = pairs(&copy.headers).collect();
                if size(&headers) > HEADERS_BYTES_MAX {
                    let what = "the headers of the copy do not fit into one frame";
                    return Err(Refused(what.to_owned()));
                }
                let headers = headers.into_iter();
                let headers = headers.map(|(name, value)| (name, value.to_vec())).collect();
                (retry_queue(service, name, shard), headers)
            }
        };
        let mut table = FieldTable::default();
        for (name, value) in headers.into_iter().filter(|(name, _)| fits(name)) {
            table.insert(short(name), AMQPValue::LongString(value.into()));
        }
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_timestamp(unix_now().as_secs())
            .with_headers(table);
        if !message.id().is_empty() && fits(message.id()) {
            properties = properties.with_message_id(short(message.id()));
        }
        if let Some(event_type) = message.received().event_type.as_deref() {
            properties = properties.with_type(short(event_type));
        }
        if let Some(content_type) = message.content_type() {
            properties = properties.with_content_type(short(content_type));
        }
        let body = copy.value.as_deref().unwrap_or_default();
        Ok(AmqpCopy { exchange, routing_key: message.topic(), properties, body })
    }
}

impl Copies for RabbitCopies {
    async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<(), Refused> {
        let copy = self.copy_of(outgoing)?;
        let slot = (outgoing.message.lane_hash() % CHANNELS as u64) as usize;
        let mut backoff = Backoff::default();
        loop {
            let mut sending = std::pin::pin!(self.send(slot, &copy));
            let sent = match tokio::time::timeout(TELL_AFTER, &mut sending).await {
                Ok(sent) => sent,
                Err(_) => {
                    let exchange = &copy.exchange;
                    let what = "RabbitMQ confirms nothing: is it short of memory or disk?";
                    tracing::warn!(code = "inbox.copy-not-confirmed", exchange, "{what}");
                    sending.await
                }
            };
            let reason = match sent {
                Ok(()) => return Ok(()),
                Err(Unconfirmed::Refused(reason)) => return Err(Refused(reason)),
                Err(Unconfirmed::Outage(reason)) => reason,
            };
            let exchange = &copy.exchange;
            tracing::warn!(code = "inbox.copy-not-confirmed", exchange, reason, "it is sent again");
            tokio::time::sleep(backoff.next()).await;
        }
    }
}

fn pairs<V: AsRef<[u8]>>(headers: &[(String, V)]) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_ref()))
}

fn size(headers: &[(&str, &[u8])]) -> usize {
    headers.iter().map(|(name, value)| HEADER_COST_BYTES + name.len() + value.len()).sum()
}

fn fits(name: &str) -> bool {
    name.len() <= SHORT_BYTES_MAX
}

/// The headers of a dead letter, without the largest ones of the message if they are too many; then
/// with their names.
fn fitting<V: AsRef<[u8]>>(headers: &[(String, V)]) -> Vec<(&str, Vec<u8>)> {
    let mut kept: Vec<(&str, &[u8])> = pairs(headers).collect();
    let mut dropped: Vec<&str> = Vec::new();
    while size(&kept) > HEADERS_BYTES_MAX {
        let theirs = kept.iter().enumerate().filter(|(_, it)| !it.0.starts_with(DLQ_PREFIX));
        let Some((largest, _)) = theirs.max_by_key(|(_, (_, value))| value.len()) else { break };
        dropped.push(kept.remove(largest).0);
    }
    let mut fitting: Vec<_> =
        kept.into_iter().map(|(name, value)| (name, value.to_vec())).collect();
    if !dropped.is_empty() {
        let mut names = dropped.join(",").into_bytes();
        names.truncate(DROPPED_BYTES_MAX);
        fitting.push((HEADERS_DROPPED, names));
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_leaves_out_the_largest_headers_of_the_message() {
        let header = |name: &str, bytes: usize| (name.to_owned(), vec![b'x'; bytes]);
        let headers = [
            header("small", 10),
            header("huge", HEADERS_BYTES_MAX),
            header("dlq-error-msg", 2_000),
            header("large", 100 * 1024),
        ];
        let fitting = fitting(&headers);
        let names: Vec<&str> = fitting.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["small", "dlq-error-msg", "large", HEADERS_DROPPED]);
        assert_eq!(fitting[3].1, b"huge");
        assert_eq!(super::fitting(&headers[2..3]).len(), 1);
    }
}

//! RabbitMQ: the exchange SERVICE leads to the queue SERVICE, from which one inbox at a time reads.
//!
//! ```text
//! outbox.events ─patterns─▶ SERVICE (fanout) ─▶ SERVICE (quorum, single active consumer)
//!                                 ▲                     │ a copy, confirmed
//!                                 └── after its time ── SERVICE.retry.30s.N (quorum, x-message-ttl)
//!                                        SERVICE.dlx (fanout) ─▶ SERVICE.dlq (stream)
//! ```
//!
//! | File | What |
//! |---|---|
//! | `connection` | how a connection is made, and what its errors mean |
//! | `init` | makes exchanges, queues and bindings |
//! | `reader` | consumes the queue and acknowledges |
//! | `delivery` | a message as it came |
//! | `copies` | publishes copies, each confirmed |

mod connection;
mod copies;
mod delivery;
mod init;
mod reader;
#[cfg(test)]
mod testing;

use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};

use crate::broker::{Broker, Stop};
use crate::lanes::Lanes;
use crate::time::short;
use crate::{InboxError, Settings};
use copies::RabbitCopies;

pub use connection::ConnectAmqp;

/// The exchange to which the relay publishes, when nothing else is configured.
const SOURCE_EXCHANGE: &str = "outbox.events";

/// Without the URL, which may have a password.
const NO_URL: &str = "the URL of RabbitMQ cannot be read: it is amqp://USER:PASSWORD@HOST:PORT/VHOST, and \
    in each part what is no letter or digit is written as %2F";

/// A RabbitMQ broker, and the events that are read.
#[derive(Clone)]
#[must_use]
pub struct RabbitMq {
    url: String,
    exchange: String,
    patterns: Vec<String>,
    shards: u32,
    prefetch: u16,
    connect: Option<ConnectAmqp>,
}

impl RabbitMq {
    /// `url` is `amqp://user:password@host:5672/vhost`. `patterns` are binding keys of the relay's
    /// exchange, such as `outbox.event.order` or `outbox.event.*`.
    pub fn new(
        url: impl Into<String>,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> RabbitMq {
        RabbitMq {
            url: url.into(),
            exchange: SOURCE_EXCHANGE.to_owned(),
            patterns: patterns.into_iter().map(Into::into).collect(),
            shards: 4,
            prefetch: 64,
            connect: None,
        }
    }

    /// The exchange to which the relay publishes (default `outbox.events`).
    pub fn exchange(mut self, exchange: impl Into<String>) -> RabbitMq {
        self.exchange = exchange.into();
        self
    }

    /// How many queues each retry level has (default 4). A key always has the same one.
    pub fn shards(mut self, shards: u32) -> RabbitMq {
        self.shards = shards;
        self
    }

    /// How many messages the broker sends ahead of their acknowledgement (default 64). No more
    /// than [`Settings::lane_messages_max`](crate::Settings::lane_messages_max).
    pub fn prefetch(mut self, messages: u16) -> RabbitMq {
        self.prefetch = messages;
        self
    }

    /// How a connection is opened, for TLS or a password that changes. By default it is opened by
    /// the URL, without TLS.
    pub fn connect(mut self, connect: ConnectAmqp) -> RabbitMq {
        self.connect = Some(connect);
        self
    }

    fn check(&self, settings: &Settings) -> Result<(), InboxError> {
        // The parser's own text may repeat the URL with its password.
        let no_url = |_| InboxError::Settings(NO_URL.to_owned());
        let is_tls = match &self.connect {
            Some(_) => false,
            None => self.url.parse::<AMQPUri>().map_err(no_url)?.scheme == AMQPScheme::AMQPS,
        };
        let wrong = if self.shards == 0 || self.prefetch == 0 {
            "there must be a queue for each retry level, and a message to prefetch"
        } else if self.patterns.is_empty() {
            "there is no binding key to read"
        } else if usize::from(self.prefetch) > settings.lane_messages_max {
            "RabbitMq::prefetch is more than Settings::lane_messages_max: a key that is slow would fill \
             its lane and hold up all others"
        } else if is_tls {
            "amqps needs RabbitMq::connect, which opens a connection with TLS"
        } else {
            return Ok(());
        };
        Err(InboxError::Settings(wrong.to_owned()))
    }
}

impl Broker for RabbitMq {
    /// A delivery tag.
    type Mark = u64;
    type Copies = RabbitCopies;
    const SYSTEM: &'static str = "rabbitmq";
    const HAS_EXCHANGES: bool = true;

    async fn init(&self, settings: &Settings) -> Result<(), InboxError> {
        self.check(settings)?;
        init::make(self, settings).await
    }

    fn copies(&self, settings: &Settings) -> Result<RabbitCopies, InboxError> {
        self.check(settings)?;
        Ok(RabbitCopies::new(self, settings))
    }

    async fn consume(
        &self,
        settings: &Settings,
        lanes: Lanes<u64>,
        stop: Stop,
    ) -> Result<(), InboxError> {
        reader::consume(self, settings, &lanes, stop).await
    }
}

/// Exchange and queue of one shard of a retry level.
fn retry_queue(service: &str, level: Duration, shard: u64) -> String {
    format!("{service}.retry.{}.{shard}", short(level))
}

fn is_retry_queue(queue: &str, service: &str) -> bool {
    queue.strip_prefix(service).is_some_and(|rest| rest.starts_with(".retry."))
}

fn dead_letter_exchange(service: &str) -> String {
    format!("{service}.dlx")
}

fn dead_letter_queue(service: &str) -> String {
    format!("{service}.dlq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_makes_no_sense_is_refused_without_its_password() {
        let settings = crate::Settings::new("billing", "");
        let source = |url: &str| RabbitMq::new(url, ["order.*"]);
        assert!(source("amqp://user:secret@host:5672/%2f").check(&settings).is_ok());
        assert!(source("amqp://host").prefetch(64).check(&settings).is_ok());
        let never: ConnectAmqp = std::sync::Arc::new(|| Box::pin(std::future::pending()));
        assert!(source("amqps://user:secret@host").connect(never.clone()).check(&settings).is_ok());
        assert!(source("").connect(never).check(&settings).is_ok(), "the URL is not used");
        for wrong in [
            source("amqp:user:secret@host"),
            source("amqp://user:secret@host:port"),
            source("http://user:secret@host"),
            source("user:secret@host"),
            source("AMQPS://user:secret@host"),
            source("amqp://user:secret@host/?heartbeat=secret"),
            source("amqp://user:secret@host").shards(0),
            source("amqp://user:secret@host").prefetch(0),
            source("amqp://user:secret@host").prefetch(65),
            RabbitMq::new("amqp://user:secret@host", [] as [&str; 0]),
        ] {
            let refused = wrong.check(&settings).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_refused_url_is_told_at_the_start() {
        let settings = crate::Settings::new("billing", "");
        let wrong = RabbitMq::new("amqp:user:secret@host", ["order.*"]);
        let told =
            tokio::time::timeout(Duration::from_secs(1), wrong.init(&settings)).await.unwrap();
        assert!(matches!(told, Err(InboxError::Settings(_))));
        assert!(matches!(wrong.copies(&settings), Err(InboxError::Settings(_))));
    }
}

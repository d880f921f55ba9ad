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
//! | `delivery` | a message as it came, and the token that acknowledges it |
//! | `copies` | publishes copies, each confirmed |

mod connection;
mod copies;
mod delivery;
mod init;
mod reader;

use std::sync::Arc;

use crate::InboxError;
use crate::broker::{Broker, Stop};
use crate::lanes::Lanes;
use crate::message::stable_hash;
use crate::settings::Plan;
use copies::RabbitCopies;
use delivery::AckToken;

pub use connection::ConnectAmqp;

/// The exchange to which the relay publishes, when nothing else is configured.
const SOURCE_EXCHANGE: &str = "outbox.events";

/// A RabbitMQ broker, and the events that are read.
#[derive(Clone)]
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
    #[must_use]
    pub fn exchange(mut self, exchange: impl Into<String>) -> RabbitMq {
        self.exchange = exchange.into();
        self
    }

    /// How many queues each retry level has (default 4). A key always has the same one.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> RabbitMq {
        self.shards = shards;
        self
    }

    /// How many messages the broker sends ahead of their acknowledgement (default 64).
    #[must_use]
    pub fn prefetch(mut self, messages: u16) -> RabbitMq {
        self.prefetch = messages;
        self
    }

    /// How a connection is opened, for TLS or a password that changes. By default it is opened by
    /// the URL, without TLS.
    #[must_use]
    pub fn connect(mut self, connect: ConnectAmqp) -> RabbitMq {
        self.connect = Some(connect);
        self
    }

    fn check(&self) -> Result<(), InboxError> {
        let wrong = if self.shards == 0 || self.prefetch == 0 {
            "there must be a queue for each retry level, and a message to prefetch"
        } else if self.patterns.is_empty() {
            "there is no binding key to read"
        } else if self.connect.is_none() && self.url.starts_with("amqps:") {
            "amqps needs RabbitMq::connect, which opens a connection with TLS"
        } else {
            return Ok(());
        };
        Err(InboxError::Settings(wrong.to_owned()))
    }
}

impl Broker for RabbitMq {
    type Token = AckToken;
    type Copies = RabbitCopies;
    const SYSTEM: &'static str = "rabbitmq";

    /// Not the exchange that the message came from: others are bound to that, too.
    fn replay_exchange(&self, plan: &Plan) -> Option<String> {
        Some(plan.service.clone())
    }

    async fn init(&self, plan: &Plan) -> Result<(), InboxError> {
        self.check()?;
        init::make(self, plan).await
    }

    fn copies(&self, plan: &Plan) -> Result<RabbitCopies, InboxError> {
        self.check()?;
        Ok(RabbitCopies::new(self, plan))
    }

    async fn consume(
        &self,
        plan: &Plan,
        lanes: Lanes<AckToken>,
        stop: Stop,
    ) -> Result<(), InboxError> {
        reader::consume(self, plan, Arc::new(lanes), stop).await
    }
}

/// Exchange and queue of one shard of a retry level.
fn retry_queue(service: &str, level: &str, shard: u64) -> String {
    format!("{service}.retry.{level}.{shard}")
}

fn is_retry_queue(queue: &str, service: &str) -> bool {
    queue.strip_prefix(service).is_some_and(|rest| rest.starts_with(".retry."))
}

/// The shard of a key. What has no key has no order, and goes by its id.
fn shard(key: Option<&[u8]>, id: &str, shards: u32) -> u64 {
    stable_hash(key.unwrap_or(id.as_bytes())) % u64::from(shards)
}

fn dead_letter_exchange(service: &str) -> String {
    format!("{service}.dlx")
}

fn dead_letter_queue(service: &str) -> String {
    format!("{service}.dlq")
}

fn broker_error(what: impl Into<String>, error: impl std::fmt::Display) -> InboxError {
    InboxError::Broker { what: what.into(), reason: error.to_string() }
}

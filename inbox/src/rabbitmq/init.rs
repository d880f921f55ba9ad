//! Makes the exchanges, queues and bindings of a consumer. What exists is left as it is; the broker
//! refuses what exists with other arguments.

use lapin::options::{
    ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::connection::{Loss, close, open, short};
use super::{RabbitMq, dead_letter_exchange, dead_letter_queue, retry_queue};
use crate::settings::Level;
use crate::{InboxError, Settings};

/// RabbitMQ 4 gives up a message after 20 deliveries unless told otherwise, and a consumer that is
/// killed counts as one.
const DELIVERIES_MAX: i64 = 1_000_000_000;

pub(super) async fn make(rabbit: &RabbitMq, settings: &Settings) -> Result<(), InboxError> {
    let refused = |loss: Loss| InboxError::broker("connecting to RabbitMQ", loss.text);
    let connection = open(rabbit, &settings.service, "init").await.map_err(refused)?;
    let making = async {
        let opened = connection.create_channel().await;
        let channel = opened.map_err(|error| InboxError::broker("opening a channel", error))?;
        Setup { rabbit, settings, channel }.make().await
    };
    let made = making.await;
    close(&connection).await;
    made
}

struct Setup<'a> {
    rabbit: &'a RabbitMq,
    settings: &'a Settings,
    channel: Channel,
}

impl Setup<'_> {
    async fn make(&self) -> Result<(), InboxError> {
        let (service, source) = (&self.settings.service, &self.rabbit.exchange);
        self.source_exists().await?;
        self.fanout(service).await?;
        let arguments = [
            ("x-queue-type", text("quorum")),
            ("x-single-active-consumer", AMQPValue::Boolean(true)),
            ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERIES_MAX)),
        ];
        self.queue(service, service, table(arguments)).await?;
        for level in &self.settings.levels {
            for shard in 0..self.rabbit.shards {
                let name = retry_queue(service, &level.name, shard.into());
                self.fanout(&name).await?;
                self.queue(&name, &name, table(retry_arguments(service, level))).await?;
            }
        }
        let (exchange, queue) = (dead_letter_exchange(service), dead_letter_queue(service));
        self.fanout(&exchange).await?;
        self.queue(&queue, &exchange, table([("x-queue-type", text("stream"))])).await?;
        // The last, so that no message comes before there is a place for its copies.
        for pattern in &self.rabbit.patterns {
            let bind = self.channel.exchange_bind(
                short(service),
                short(source),
                short(pattern),
                ExchangeBindOptions::default(),
                FieldTable::default(),
            );
            let what = || format!("binding exchange {service} to {source} by {pattern:?}");
            bind.await.map_err(|error| InboxError::broker(what(), error))?;
        }
        Ok(())
    }

    /// The relay's `init` makes it, and knows its type.
    async fn source_exists(&self) -> Result<(), InboxError> {
        let source = &self.rabbit.exchange;
        let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let kind = ExchangeKind::Topic;
        let asked =
            self.channel.exchange_declare(short(source), kind, options, FieldTable::default());
        let what = || format!("exchange {source}, which `walrelay init` makes");
        asked.await.map_err(|error| InboxError::broker(what(), error))
    }

    async fn fanout(&self, name: &str) -> Result<(), InboxError> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let made = self.channel.exchange_declare(
            short(name),
            ExchangeKind::Fanout,
            options,
            FieldTable::default(),
        );
        made.await.map_err(|error| InboxError::broker(format!("making exchange {name}"), error))
    }

    async fn queue(
        &self,
        name: &str,
        exchange: &str,
        arguments: FieldTable,
    ) -> Result<(), InboxError> {
        let failed = |error| InboxError::broker(format!("making queue {name}"), error);
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(short(name), options, arguments).await.map_err(failed)?;
        let (queue, exchange, any) = (short(name), short(exchange), short(""));
        let options = QueueBindOptions::default();
        let bound = self.channel.queue_bind(queue, exchange, any, options, FieldTable::default());
        bound.await.map_err(failed)
    }
}

/// A message waits its time, and goes to exchange SERVICE with its routing key. At least once: the
/// queue keeps it until the queue SERVICE has confirmed it.
fn retry_arguments(service: &str, level: &Level) -> [(&'static str, AMQPValue); 5] {
    let ttl_ms = i64::try_from(level.delay.as_millis()).unwrap_or(i64::MAX);
    [
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", AMQPValue::LongLongInt(ttl_ms)),
        ("x-dead-letter-exchange", text(service)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ]
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn table<const N: usize>(arguments: [(&'static str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert(short(name), value);
    }
    table
}

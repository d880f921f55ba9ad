//! Makes the exchanges, queues and bindings of a consumer. What exists is left as it is; the broker
//! refuses what exists with other arguments.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::options::{
    ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::connection::{ACCESS_REFUSED, Link, Loss, close, in_time, open, short};
use super::{RabbitMq, dead_letter_exchange, dead_letter_queue, retry_queue};
use crate::{InboxError, Settings};

/// RabbitMQ 4 gives up a message after 20 deliveries unless told otherwise, and a consumer that is
/// killed counts as one.
const DELIVERIES_MAX: i64 = 1_000_000_000;

const NO_ANSWER: &str = "RabbitMQ gave no answer";

pub(super) async fn make(rabbit: &RabbitMq, settings: &Settings) -> Result<(), InboxError> {
    let refused = |loss: Loss| InboxError::broker("connecting to RabbitMQ", loss.text);
    let connection = open(rabbit, &settings.service, "init").await.map_err(refused)?;
    let making = async {
        let channel = open_channel(&connection).await?;
        Setup { rabbit, settings, channel }.make(&connection).await
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
    async fn make(mut self, connection: &Link) -> Result<(), InboxError> {
        let (service, source) = (&self.settings.service, &self.rabbit.exchange);
        self.look_for_source(connection).await?;
        let arguments = [
            ("x-queue-type", text("quorum")),
            ("x-single-active-consumer", AMQPValue::Boolean(true)),
            ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERIES_MAX)),
        ];
        self.queue(service, service, arguments).await?;
        for &level in &self.settings.levels {
            for shard in 0..self.rabbit.shards {
                let name = retry_queue(service, level, shard.into());
                self.queue(&name, &name, retry_arguments(service, level)).await?;
            }
        }
        let (exchange, queue) = (dead_letter_exchange(service), dead_letter_queue(service));
        self.queue(&queue, &exchange, [("x-queue-type", text("stream"))]).await?;
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
            answer(bind, what).await?;
        }
        Ok(())
    }

    /// The relay's `init` makes it, and knows its type. RabbitMQ 4.2.6 and 4.3.0 tell only a login that may
    /// configure it whether it exists; then the bindings show whether it is missing.
    async fn look_for_source(&mut self, connection: &Link) -> Result<(), InboxError> {
        let source = &self.rabbit.exchange;
        let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let kind = ExchangeKind::Topic;
        let asked =
            self.channel.exchange_declare(short(source), kind, options, FieldTable::default());
        match in_time(asked, NO_ANSWER).await {
            // The broker closes the channel over a question that it refuses.
            Err(loss) if loss.code == Some(ACCESS_REFUSED) => {
                self.channel = open_channel(connection).await?;
                Ok(())
            }
            asked => asked.map_err(|loss| {
                let what = format!("exchange {source}, which `walrelay init` makes");
                InboxError::broker(what, loss.text)
            }),
        }
    }

    /// A fanout exchange, and the queue to which it leads.
    async fn queue<const N: usize>(
        &self,
        name: &str,
        exchange: &str,
        arguments: [(&str, AMQPValue); N],
    ) -> Result<(), InboxError> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let (kind, nothing) = (ExchangeKind::Fanout, FieldTable::default());
        let made = self.channel.exchange_declare(short(exchange), kind, options, nothing);
        answer(made, || format!("making exchange {exchange}")).await?;
        let what = || format!("making queue {name}");
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let arguments = BTreeMap::from(arguments.map(|(name, value)| (short(name), value))).into();
        answer(self.channel.queue_declare(short(name), options, arguments), what).await?;
        let (queue, exchange, any) = (short(name), short(exchange), short(""));
        let options = QueueBindOptions::default();
        let bound = self.channel.queue_bind(queue, exchange, any, options, FieldTable::default());
        answer(bound, what).await
    }
}

async fn open_channel(connection: &Link) -> Result<Channel, InboxError> {
    answer(connection.create_channel(), || "opening a channel".into()).await
}

/// The answer of the broker to one request, which comes in time or is an error.
async fn answer<T>(
    asking: impl Future<Output = Result<T, lapin::Error>>,
    what: impl FnOnce() -> String,
) -> Result<T, InboxError> {
    in_time(asking, NO_ANSWER).await.map_err(|loss| InboxError::broker(what(), loss.text))
}

/// A message waits its time, and goes to exchange SERVICE with its routing key. At least once: the
/// queue keeps it until the queue SERVICE has confirmed it.
fn retry_arguments(service: &str, level: Duration) -> [(&'static str, AMQPValue); 5] {
    let ttl_ms = i64::try_from(level.as_millis()).unwrap_or(i64::MAX);
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

#[cfg(test)]
mod tests {
    use super::super::testing::{hiding_node, silent_node};
    use super::*;

    #[tokio::test]
    async fn an_exchange_that_is_hidden_is_taken_to_be_there() {
        let ((node, _ended), settings) = (hiding_node(), Settings::new("billing", ""));
        let making = tokio::time::timeout(Duration::from_secs(30), make(&node, &settings));
        let error = making.await.expect("it ends").unwrap_err().to_string();
        assert_eq!(error, "making exchange billing: RabbitMQ gave no answer within 10 s");
    }

    #[tokio::test]
    async fn a_declaration_that_is_not_answered_is_an_error_that_names_it() {
        let ((node, _ended), settings) = (silent_node(), Settings::new("billing", ""));
        let making = tokio::time::timeout(Duration::from_secs(30), make(&node, &settings));
        let error = making.await.expect("it ends").unwrap_err().to_string();
        let told = "exchange outbox.events, which `walrelay init` makes: RabbitMQ gave no answer within 10 s";
        assert_eq!(error, told);
    }
}

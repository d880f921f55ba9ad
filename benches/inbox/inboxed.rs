//! The consumer with the inbox, as its documents show it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::Transaction;
use walrelay_harness::{Broker, HarnessError, Result, other};
use walrelay_inbox::{Handler, Inbox, Kafka, Message, RabbitMq, Settings};

use crate::Options;
use crate::handler::{Counted, wait};
use crate::topic::{EXCHANGE, TOPIC};

struct Writes(Arc<Counted>);

impl Handler for Writes {
    type Error = tokio_postgres::Error;

    async fn handle(
        &self,
        message: &Message,
        transaction: &Transaction<'_>,
    ) -> Result<(), Self::Error> {
        let bytes = message.value().unwrap_or_default().len();
        self.0.write(transaction, message.id(), bytes).await
    }
}

fn inbox(broker: &Broker, url: &str, service: &str, options: &Options) -> Inbox {
    let settings = Settings::new(service, url).lanes(options.lanes);
    match broker {
        Broker::Kafka(kafka) => Inbox::new(settings, Kafka::new(kafka.bootstrap(), [TOPIC])),
        Broker::RabbitMq(rabbitmq) => {
            Inbox::new(settings, RabbitMq::new(rabbitmq.amqp_url(), [TOPIC]).exchange(EXCHANGE))
        }
    }
}

/// Makes what it reads from: on RabbitMQ, before there are messages.
pub(crate) fn init(broker: &Broker, url: &str, service: &str, options: &Options) -> Result<()> {
    let runtime = Runtime::new().map_err(HarnessError::io("start a runtime"))?;
    runtime.block_on(inbox(broker, url, service, options).init()).map_err(other)
}

pub(crate) fn consume(
    broker: &Broker,
    url: &str,
    service: &str,
    options: &Options,
) -> Result<Duration> {
    let runtime = Runtime::new().map_err(HarnessError::io("start a runtime"))?;
    let inbox = inbox(broker, url, service, options);
    let counted = Arc::new(Counted::new(options.messages));
    let done = counted.done();
    runtime.block_on(async {
        inbox.init().await.map_err(other)?;
        let all = wait(done.clone());
        let shutdown = async move {
            all.await;
        };
        inbox.run(Writes(counted), shutdown).await.map_err(other)?;
        Ok(wait(done).await)
    })
}

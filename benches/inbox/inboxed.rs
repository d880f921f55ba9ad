//! The consumer with the inbox, as its documents show it.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Transaction;
use walrelay_harness::{HarnessError, Result};
use walrelay_inbox::{Handler, Inbox, Kafka, Message, Settings};

use crate::Options;
use crate::handler::{Counted, wait};
use crate::topic::TOPIC;

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

pub(crate) fn consume(
    brokers: &str,
    url: &str,
    service: &str,
    options: &Options,
) -> Result<Duration> {
    let failed = |error: walrelay_inbox::InboxError| HarnessError::Other(error.to_string());
    let runtime = tokio::runtime::Runtime::new().map_err(HarnessError::io("start a runtime"))?;
    let settings = Settings::new(service, url).lanes(options.lanes);
    let inbox = Inbox::new(settings, Kafka::new(brokers, [TOPIC]));
    let counted = Arc::new(Counted::new(options.messages));
    let done = counted.done();
    runtime.block_on(async {
        inbox.init().await.map_err(failed)?;
        let all = wait(done.clone());
        let shutdown = async move {
            all.await;
        };
        inbox.run(Writes(counted), shutdown).await.map_err(failed)?;
        Ok(wait(done).await)
    })
}

//! The consumer without the inbox: reads, hands each message to the lane of its key, and commits its
//! offsets when all is done. It would do a message twice after a crash.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use tokio::sync::mpsc;
use tokio_postgres::NoTls;
use walrelay_harness::{HarnessError, Result};

use crate::Options;
use crate::handler::{Counted, wait};
use crate::topic::TOPIC;

const POLL: Duration = Duration::from_millis(100);
/// As many as wait in front of a lane of the inbox.
const WAITING: usize = 64;

pub(crate) fn consume(
    brokers: &str,
    url: &str,
    group: &str,
    options: &Options,
) -> Result<Duration> {
    let runtime = tokio::runtime::Runtime::new().map_err(HarnessError::io("start a runtime"))?;
    let counted = Arc::new(Counted::new(options.messages));
    let mut lanes = Vec::new();
    for _ in 0..options.lanes {
        let (sender, receiver) = mpsc::channel(WAITING);
        let client = runtime.block_on(connect(url))?;
        lanes.push(sender);
        runtime.spawn(lane(client, receiver, counted.clone()));
    }
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", group).set("log_level", "0");
    config.set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&[TOPIC])?;
    let done = counted.done();
    while done.borrow().is_none() {
        let Some(message) = consumer.poll(POLL) else { continue };
        let message = message?.detach();
        let lane = hash(message.key().unwrap_or_default()) % options.lanes as u64;
        let gone = |_| HarnessError::Other("a lane has ended".into());
        lanes[lane as usize].blocking_send(message).map_err(gone)?;
    }
    consumer.commit_consumer_state(CommitMode::Sync)?;
    Ok(runtime.block_on(wait(done)))
}

async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

async fn lane(
    mut client: tokio_postgres::Client,
    mut messages: mpsc::Receiver<OwnedMessage>,
    counted: Arc<Counted>,
) -> Result<(), tokio_postgres::Error> {
    while let Some(message) = messages.recv().await {
        let id = message.headers().and_then(|headers| {
            let header = headers.iter().find(|header| header.key == "id")?;
            std::str::from_utf8(header.value?).ok()
        });
        let transaction = client.transaction().await?;
        let bytes = message.payload().unwrap_or_default().len();
        counted.write(&transaction, id.unwrap_or_default(), bytes).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

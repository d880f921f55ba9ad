//! An exchange and a queue of one's own for a while, read as messages come.
//!
//! The queue is of the type that `init` makes (a stream has no place here: then a quorum queue).
//! Messages are handed out without acknowledgement: what a consumer has seen was delivered, and an
//! acknowledgement would only put load on the broker that is measured.

use std::time::{Duration, Instant};

use futures_core::Stream as _;
use lapin::Consumer;
use lapin::options::{BasicConsumeOptions, ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::runtime::Runtime;

use super::connection::{self, Connection};
use super::fault::{self, Loss};
use super::mend_hints;
use super::message::short;
use super::settings::RabbitSettings;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::sink::bench_target::{Arrival, Scratch};
use crate::sink::rabbitmq::probe::{self as ask, STREAM};

const KIND: &str = "topic";
const READER: &str = "walrelay-compare";

pub(super) struct RabbitScratch {
    settings: RabbitSettings,
    consumer: Consumer,
    /// Closed with this.
    _connection: Connection,
    /// Last: what it carries must be gone first.
    runtime: Runtime,
}

/// The same broker with this exchange and nothing else to look for.
pub(super) fn toward(settings: &RabbitSettings, name: &str) -> RabbitSettings {
    RabbitSettings {
        exchange: Some(name.to_owned()),
        exchange_type: KIND.to_owned(),
        queues: std::collections::BTreeMap::new(),
        management: None,
        ..settings.clone()
    }
}

/// Makes exchange, queue and binding, and begins to read.
pub(super) fn make(settings: &RabbitSettings, name: &str) -> Result<RabbitScratch, Fault> {
    let runtime = runtime::multi_thread(1, "compare-consumer")?;
    let (connection, consumer) = runtime.block_on(async {
        let connection = connection::open(settings, 0).await;
        let connection = connection.map_err(|loss| fault::unreachable(settings, &loss))?;
        let consumer = start(settings, &connection, name).await?;
        Ok::<_, Fault>((connection, consumer))
    })?;
    Ok(RabbitScratch { settings: settings.clone(), consumer, _connection: connection, runtime })
}

async fn start(
    settings: &RabbitSettings,
    connection: &Connection,
    name: &str,
) -> Result<Consumer, Fault> {
    let link = &connection.link;
    let failed = |what: &str| {
        let what = format!("{what} {name}");
        move |loss: Loss| mend_hints::not_made(settings, &what, &loss)
    };
    let kind = Some(settings.queue_type.as_str()).filter(|kind| *kind != STREAM);
    ask::declare_exchange(link, name, KIND, false, false).await.map_err(failed("exchange"))?;
    let declared = ask::declare_queue(link, name, kind.unwrap_or("quorum")).await;
    declared.map_err(failed("queue"))?;
    ask::bind(link, name, name, name).await.map_err(failed("the binding of queue"))?;
    let channel = link.asking().await.map_err(failed("a consumer of queue"))?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let begun =
        channel.basic_consume(short(name), short(READER), options, FieldTable::default()).await;
    begun.map_err(|error| failed("a consumer of queue")(error.into()))
}

pub(super) fn by_hand(settings: &RabbitSettings, name: &str) -> String {
    [format!("delete queue name={name}"), format!("delete exchange name={name}")]
        .map(|words| mend_hints::admin(settings, &words))
        .join("\n")
}

/// Removes queue and exchange; what is not there is removed already.
pub(super) fn remove(settings: &RabbitSettings, name: &str) -> Result<(), Fault> {
    runtime::block_on(async {
        let connection = connection::open(settings, 0).await;
        let connection = connection.map_err(|loss| {
            let fault = fault::unreachable(settings, &loss);
            Fault { mend: format!("{}\n{}", fault.mend, by_hand(settings, name)), ..fault }
        })?;
        let removed = async {
            let channel = connection.link.asking().await?;
            channel.queue_delete(short(name), QueueDeleteOptions::default()).await?;
            channel.exchange_delete(short(name), ExchangeDeleteOptions::default()).await?;
            Ok::<_, Loss>(())
        };
        let removed = removed.await;
        connection.close().await;
        removed.map_err(|loss| {
            Fault::new(
                Exit::Sink,
                "sink.scratch-left",
                format!("cannot delete queue and exchange {name}: {}", loss.text),
                settings.place(),
                by_hand(settings, name),
            )
        })
    })?
}

impl Scratch for RabbitScratch {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn place(&self) -> String {
        self.settings.place()
    }

    fn consume(&mut self, patience: Duration) -> Result<Option<Arrival>, Fault> {
        let RabbitScratch { runtime, consumer, settings, .. } = self;
        let next =
            std::future::poll_fn(|context| std::pin::pin!(&mut *consumer).poll_next(context));
        let ended = |reason: &str| Err(fault::unreachable(settings, &Loss::of(reason)));
        match runtime.block_on(async { tokio::time::timeout(patience, next).await }) {
            Err(_) => Ok(None),
            Ok(Some(Ok(delivery))) => {
                Ok(Some(Arrival { at: Instant::now(), value: delivery.data }))
            }
            Ok(Some(Err(error))) => ended(&error.to_string()),
            Ok(None) => ended("the consumer was cancelled"),
        }
    }
}

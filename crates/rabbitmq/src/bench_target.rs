//! A temporary exchange and queue, read as messages come.
//!
//! The queue has the type that `init` makes, except that a quorum queue replaces a stream, which
//! cannot be consumed without acknowledgements. What a consumer has seen was delivered; an
//! acknowledgement would only load the broker that is measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lapin::Consumer;
use lapin::options::{BasicConsumeOptions, ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::connection::AmqpConnection;
use super::connection_loss::ConnectionLoss;
use super::probe::{Probe, STREAM, short};
use super::settings::RabbitSettings;
use super::setup_faults::SetupFaults;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::runtime;
use walrelay_base::template::Template;
use walrelay_sink::bench_target::{Arrival, BenchTarget};

const TOPIC: &str = "topic";
const READER: &str = "walrelay-compare";

pub(super) struct RabbitBenchTarget {
    settings: RabbitSettings,
    consumer: Consumer,
    _connection: AmqpConnection,
    /// Dropped last, after the connection.
    runtime: BackgroundRuntime,
}

/// A runtime that is not waited for: one that is would panic where it is dropped within another one, as by
/// a comparison that is cancelled.
struct BackgroundRuntime(Option<Runtime>);

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The same broker with this exchange and no other requirement.
pub(super) fn settings_for(settings: &RabbitSettings, name: &str) -> RabbitSettings {
    RabbitSettings {
        exchange: Template::literal(name),
        exchange_type: TOPIC.to_owned(),
        queues: BTreeMap::new(),
        ..settings.clone()
    }
}

/// Creates exchange, queue and binding, and starts a consumer.
pub(super) fn create(settings: &RabbitSettings, name: &str) -> Result<RabbitBenchTarget, Fault> {
    let runtime = runtime::multi_thread(1, "compare-consumer")?;
    let (connection, consumer) = runtime.block_on(async {
        let connection = AmqpConnection::open_once(settings).await?;
        let consumer = start(settings, &connection.probe, name).await?;
        Ok::<_, Fault>((connection, consumer))
    })?;
    let (settings, runtime) = (settings.clone(), BackgroundRuntime(Some(runtime)));
    Ok(RabbitBenchTarget { settings, consumer, _connection: connection, runtime })
}

async fn start(settings: &RabbitSettings, probe: &Probe, name: &str) -> Result<Consumer, Fault> {
    let failed = |what: &str| SetupFaults(settings).not_made(format!("{what} {name}"));
    let kind = if settings.queue_type == STREAM { "quorum" } else { &settings.queue_type };
    probe.declare_exchange(name, TOPIC).await.map_err(failed("exchange"))?;
    probe.declare_queue(name, kind).await.map_err(failed("queue"))?;
    probe.bind(name, name, name).await.map_err(failed("the binding of queue"))?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let beginning = async {
        let channel = probe.new_channel().await?;
        let arguments = FieldTable::default();
        channel.basic_consume(short(name), short(READER), options, arguments).await
    };
    probe.in_time(beginning).await.map_err(failed("a consumer of queue"))
}

pub(super) fn removal(settings: &RabbitSettings, name: &str) -> String {
    ["queue", "exchange"]
        .map(|what| SetupFaults(settings).admin(&format!("delete {what} --name {name}")))
        .join("\n")
}

/// Removes queue and exchange, as far as they exist.
pub(super) fn remove(settings: &RabbitSettings, name: &str) -> Result<(), Fault> {
    runtime::try_block_on(async {
        let connection = AmqpConnection::open_once(settings).await.map_err(|fault| Fault {
            mend: format!("{}\n{}", fault.mend, removal(settings, name)),
            ..fault
        })?;
        let removing = connection.probe.ask(async |channel| {
            channel.queue_delete(short(name), QueueDeleteOptions::default()).await?;
            channel.exchange_delete(short(name), ExchangeDeleteOptions::default()).await
        });
        let removed = removing.await;
        connection.close().await;
        removed.map_err(|loss| {
            let what = format!("cannot delete queue and exchange {name}: {}", loss.text);
            let mend = removal(settings, name);
            Fault::new(Exit::Sink, "sink.scratch-left", what, settings.place(), mend)
        })
    })
}

impl BenchTarget for RabbitBenchTarget {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn place(&self) -> String {
        self.settings.place()
    }

    fn consume(&mut self, patience: Duration) -> Result<Option<Arrival>, Fault> {
        let RabbitBenchTarget { runtime, consumer, settings, .. } = self;
        let ended = |reason: &str| Err(ConnectionLoss::of(reason).unreachable(&settings.address()));
        let Some(runtime) = &runtime.0 else { return ended("the connection is closed") };
        match runtime.block_on(async { timeout(patience, consumer.next()).await }) {
            Err(_) => Ok(None),
            Ok(Some(Ok(delivery))) => {
                Ok(Some(Arrival { at: Instant::now(), value: delivery.data }))
            }
            Ok(Some(Err(error))) => ended(&error.to_string()),
            Ok(None) => ended("the consumer was cancelled"),
        }
    }
}

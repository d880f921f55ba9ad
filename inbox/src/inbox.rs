//! One consumer: what it needs is made by `init`, and `run` reads until it is told to stop.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_postgres::error::SqlState;

use crate::breaker::Breaker;
use crate::broker::{Broker, Stop};
use crate::connection::{CONNECT_WITHIN, Database, Session};
use crate::copies::writer_name;
use crate::lanes::Lanes;
use crate::login::RefusedLogin;
use crate::metrics::Metrics;
use crate::process::{Processor, Shared};
use crate::retention::Retention;
use crate::span::Tracing;
use crate::store::{Store, ends_session};
use crate::{Handler, InboxError, Settings, Source};

const TABLES: &str = include_str!("../sql/inbox.sql");
/// The time that lanes may still need once the broker has let go of their messages.
const LANES_END_WITHIN: Duration = Duration::from_secs(1);
/// Postgres may be away at the start; it is not waited for longer than this.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

/// A consumer of one service, reading from one broker.
pub struct Inbox {
    settings: Settings,
    source: Source,
    metrics: OnceLock<Metrics>,
}

impl Inbox {
    pub fn new(settings: Settings, source: impl Into<Source>) -> Inbox {
        Inbox { settings, source: source.into(), metrics: OnceLock::new() }
    }

    /// Makes the tables, and the topics or queues of retries and dead letters, as far as they are
    /// missing. Needs the rights for that, which [`Inbox::run`] does not.
    pub async fn init(&self) -> Result<(), InboxError> {
        let settings = &self.settings;
        settings.check()?;
        let what = "making the tables";
        let refused = |source| postgres_error(what, source);
        let late = |_| InboxError::NoAnswer { what, within: CONNECT_WITHIN };
        let database = Database::new(settings)?;
        let connecting = tokio::time::timeout(CONNECT_WITHIN, database.connect());
        let client = connecting.await.map_err(late)?.map_err(refused)?;
        client.batch_execute(TABLES).await.map_err(refused)?;
        match &self.source {
            #[cfg(feature = "kafka")]
            Source::Kafka(kafka) => kafka.init(settings).await,
            #[cfg(feature = "rabbitmq")]
            Source::RabbitMq(rabbit) => rabbit.init(settings).await,
        }
    }

    /// Reads and handles messages until `shutdown` is ready; then finishes what has begun, and
    /// returns. It does not end because Postgres or the broker is away.
    pub async fn run<H: Handler>(
        &self,
        handler: H,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), InboxError> {
        match &self.source {
            #[cfg(feature = "kafka")]
            Source::Kafka(kafka) => self.run_with(kafka, handler, shutdown).await,
            #[cfg(feature = "rabbitmq")]
            Source::RabbitMq(rabbit) => self.run_with(rabbit, handler, shutdown).await,
        }
    }

    async fn run_with<B: Broker, H: Handler>(
        &self,
        broker: &B,
        handler: H,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), InboxError> {
        let settings = &self.settings;
        settings.check()?;
        let database = Database::new(settings)?;
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            checked = check(&database, settings) => checked?,
            () = &mut shutdown => return Ok(()),
        }
        let shared = Arc::new(Shared::<B, H> {
            handler,
            copies: broker.copies(settings)?,
            writer: writer_name(&settings.service),
            breaker: Breaker::new(settings.burst_max, settings.burst_window),
            metrics: self.metrics()?,
            tracing: Tracing::new(settings, B::SYSTEM),
            settings: settings.clone(),
        });
        let (lanes, mut lane_tasks) = start_lanes(&shared, &database);
        let mut retention = JoinSet::new();
        retention.spawn(Retention { database, settings: settings.clone() }.run());

        let (stop, stopped) = watch::channel(false);
        let consuming = broker.consume(settings, lanes, Stop(stopped));
        let stopping = async {
            shutdown.await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = consuming => ended,
            error = broken_lane(&mut lane_tasks) => Err(error),
            () = stopping => Ok(()),
        };
        // What is not done by now is dropped with its lane, and delivered again.
        let all_ended = async { while lane_tasks.join_next().await.is_some() {} };
        let _late = tokio::time::timeout(LANES_END_WITHIN, all_ended).await.is_err();
        ended
    }

    fn metrics(&self) -> Result<Metrics, InboxError> {
        if let Some(known) = self.metrics.get() {
            return Ok(known.clone());
        }
        let metrics = Metrics::new(&self.settings)
            .map_err(|error| InboxError::Settings(format!("metrics: {error}")))?;
        Ok(self.metrics.get_or_init(|| metrics).clone())
    }
}

/// A later inbox of the same consumer can register its own metrics.
impl Drop for Inbox {
    fn drop(&mut self) {
        if let (Some(metrics), Some(registry)) = (self.metrics.get(), &self.settings.registry) {
            let _known = registry.unregister(Box::new(metrics.clone())).is_ok();
        }
    }
}

fn start_lanes<B: Broker, H: Handler>(
    shared: &Arc<Shared<B, H>>,
    database: &Database,
) -> (Lanes<B::Mark>, JoinSet<()>) {
    let mut tasks = JoinSet::new();
    let lanes = (0..shared.settings.lanes).map(|_| {
        let (sender, mut deliveries) = mpsc::channel(shared.settings.lane_messages_max);
        let mut processor = Processor::new(Arc::clone(shared), Session::new(database.clone()));
        tasks.spawn(async move {
            while let Some(delivery) = deliveries.recv().await {
                processor.process(delivery).await;
            }
        });
        sender
    });
    (Lanes(lanes.collect()), tasks)
}

/// Lanes end by themselves only when there is no more to come.
async fn broken_lane(lanes: &mut JoinSet<()>) -> InboxError {
    while let Some(ended) = lanes.join_next().await {
        if let Err(error) = ended {
            return InboxError::Lane(error.to_string());
        }
    }
    std::future::pending().await
}

/// A mistake that time does not mend is told at the start: a login that is refused, a database or
/// a table that does not exist. A server that does not answer is waited for later.
async fn check(database: &Database, settings: &Settings) -> Result<(), InboxError> {
    let opened = tokio::time::timeout(CHECK_WITHIN, async {
        Store::open(database.connect().await?, &settings.service).await.map(drop)
    });
    let Ok(Err(source)) = opened.await else { return Ok(()) };
    let is_refused = RefusedLogin::among(&source).is_some();
    let what = match source.code() {
        Some(&SqlState::UNDEFINED_TABLE) => {
            "the tables of sql/inbox.sql are missing: call Inbox::init"
        }
        // Time mends it: there is no room for a session.
        Some(code) if code.code().starts_with("53") => return Ok(()),
        Some(_) if !ends_session(&source) => "Postgres refuses the consumer",
        // The library has no code for it: a password that is asked for and not given, and the like.
        None if is_refused || source.to_string().starts_with("invalid configuration") => {
            "the settings of the connection to Postgres"
        }
        _ => return Ok(()),
    };
    Err(postgres_error(what, source))
}

/// A login that is not answered is a matter of the settings: time does not mend it.
fn postgres_error(what: &'static str, source: tokio_postgres::Error) -> InboxError {
    match RefusedLogin::among(&source) {
        Some(refused) => InboxError::Settings(refused.to_string()),
        None => InboxError::Postgres { what, source },
    }
}

#[cfg(all(test, feature = "rabbitmq"))]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::RabbitMq;

    #[test]
    fn an_inbox_that_is_made_again_has_its_metrics_in_the_same_registry() {
        let registry = Registry::new();
        let inbox = || {
            let settings = Settings::new("billing", "").registry(&registry);
            Inbox::new(settings, RabbitMq::new("amqp://localhost", ["order.*"]))
        };
        // GIVEN an inbox THEN a second one of the same consumer cannot count beside it
        let first = inbox();
        first.metrics().unwrap().retried(Duration::from_secs(30));
        assert!(inbox().metrics().is_err());
        // WHEN the first is dropped THEN the second begins to count
        drop(first);
        let second = inbox();
        second.metrics().unwrap().retried(Duration::from_secs(60));
        let retries =
            registry.gather().into_iter().find(|it| it.name() == "consumer_retries_total");
        let counts = retries.unwrap();
        let counts = counts.get_metric().iter().map(|metric| metric.get_counter().get_value());
        assert_eq!(counts.sum::<f64>(), 1.0);
    }
}

//! Parts that the two consumers have in common: options, and an inbox that runs beside their HTTP
//! side.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use clap::{Args, ValueEnum};
use prometheus::Registry;
use walrelay_inbox::{Handler, Inbox, InboxError, Kafka, RabbitMq, Settings, Source};

use crate::{Failed, Shutdown, serve};

/// Where the relay publishes the events of orders: a Kafka topic, or a routing key of RabbitMQ.
const EVENTS: &str = "outbox.event.order";
/// After a failed `init`; twice as long after each further one, up to the second.
const INIT_PAUSE: Duration = Duration::from_millis(500);
const INIT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// SQLSTATEs of a login that is refused, a database that does not exist, and a right that is missing.
const MISTAKES: [&str; 3] = ["28", "3D", "42501"];

#[derive(Args, Clone, Debug)]
pub struct ConsumerOptions {
    /// The service's own database.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// The address of /metrics and /healthz.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:8081")]
    pub listen: SocketAddr,
    #[arg(long, env = "BROKER", value_enum, default_value = "kafka")]
    pub broker: BrokerName,
    #[arg(long, env = "KAFKA_BROKERS", default_value = "127.0.0.1:9092")]
    pub kafka_brokers: String,
    #[arg(
        long,
        env = "AMQP_URL",
        hide_env_values = true,
        default_value = "amqp://guest:guest@127.0.0.1:5672/%2f"
    )]
    pub amqp_url: String,
    /// How long a message waits after each failure: 30s,1m,5m
    #[arg(long, env = "RETRY_LEVELS", value_delimiter = ',', value_parser = duration,
          default_value = "30s,1m,5m")]
    pub retry_levels: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BrokerName {
    Kafka,
    #[value(name = "rabbitmq")]
    RabbitMq,
}

/// Handles the events of orders until the process is told to stop.
pub async fn consume<H: Handler>(
    service: &str,
    options: &ConsumerOptions,
    handler: H,
) -> Result<(), Failed> {
    let shutdown = Shutdown::listen()?;
    // Checked here, because `init` takes what has no SQLSTATE for an outage.
    options.database_url.parse::<tokio_postgres::Config>()?;
    let registry = Registry::new();
    let settings = Settings::new(service, &options.database_url)
        .levels(options.retry_levels.iter().copied())
        .registry(&registry);
    let inbox = Inbox::new(settings, source(options));
    tokio::select! {
        made = init(&inbox) => made?,
        () = shutdown.clone().wait() => return Ok(()),
    }
    let http = serve(options.listen, Router::new(), registry, shutdown.clone());
    let messages = async { inbox.run(handler, shutdown.wait()).await.map_err(in_words) };
    tokio::try_join!(http, messages)?;
    Ok(())
}

/// In production this is a step of the deployment. Here the broker or Postgres may not be there yet.
async fn init(inbox: &Inbox) -> Result<(), Failed> {
    let mut pause = INIT_PAUSE;
    while let Err(error) = inbox.init().await {
        if is_mistake(&error) {
            return Err(in_words(error));
        }
        tracing::warn!(%error, ?pause, "init has failed and is tried again");
        tokio::time::sleep(pause).await;
        pause = INIT_PAUSE_MAX.min(2 * pause);
    }
    Ok(())
}

/// Time does not mend it: somebody must change the settings, or what the service may do.
fn is_mistake(error: &InboxError) -> bool {
    match error {
        InboxError::Settings(_) => true,
        InboxError::Postgres { source, .. } => source
            .code()
            .is_some_and(|code| MISTAKES.iter().any(|begin| code.code().starts_with(begin))),
        // RabbitMQ's word for a refused login or a missing right.
        InboxError::Broker { reason, .. } => reason.contains("ACCESS_REFUSED"),
        InboxError::NoAnswer { .. } | InboxError::Lane(_) => false,
    }
}

/// `main` prints the `Debug` form of an error: of a text that is the text in quotes.
fn in_words(error: InboxError) -> Failed {
    error.to_string().into()
}

fn source(options: &ConsumerOptions) -> Source {
    match options.broker {
        BrokerName::Kafka => Kafka::new(&options.kafka_brokers, [EVENTS])
            // After a kill the group waits this long before it reassigns the partitions.
            .property("session.timeout.ms", "6000")
            .into(),
        BrokerName::RabbitMq => RabbitMq::new(&options.amqp_url, [EVENTS]).into(),
    }
}

/// Parses `500ms`, `30s` or `5m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wrong = || format!("{text}: write 500ms, 30s or 5m");
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(60 * number)),
        _ => Err(wrong()),
    }
}

#[test]
fn durations_have_a_unit() {
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
    for bad in ["", "5", "s", "1h", "1.5s", "-1s"] {
        assert!(duration(bad).is_err(), "{bad}");
    }
}

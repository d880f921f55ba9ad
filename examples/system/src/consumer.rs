//! What the two consumers have in common: options, and an inbox that runs beside their HTTP side.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use clap::{Args, ValueEnum};
use prometheus::Registry;
use walrelay_inbox::{Handler, Inbox, Kafka, RabbitMq, Settings, Source};

use crate::{Failed, serve, shutdown};

/// Where the relay publishes the events of orders: a Kafka topic, or a routing key of RabbitMQ.
const EVENTS: &str = "outbox.event.order";
const INIT_PAUSE: Duration = Duration::from_millis(500);

#[derive(Args, Clone, Debug)]
pub struct ConsumerOptions {
    /// The service's own database.
    #[arg(long, env = "DATABASE_URL")]
    pub database_url: String,
    /// Of /metrics and /healthz.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:8081")]
    pub listen: SocketAddr,
    #[arg(long, env = "BROKER", value_enum, default_value = "kafka")]
    pub broker: BrokerName,
    #[arg(long, env = "KAFKA_BROKERS", default_value = "127.0.0.1:9092")]
    pub kafka_brokers: String,
    #[arg(long, env = "AMQP_URL", default_value = "amqp://guest:guest@127.0.0.1:5672/%2f")]
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
    let registry = Registry::new();
    let settings = Settings::new(service, &options.database_url)
        .levels(options.retry_levels.iter().copied())
        .registry(&registry);
    let inbox = Inbox::new(settings, source(options));
    // In production this is a step of the deployment. Here the broker or Postgres may not be there yet.
    while let Err(error) = inbox.init().await {
        tracing::warn!(%error, "init has failed and is tried again");
        tokio::select! {
            () = tokio::time::sleep(INIT_PAUSE) => {}
            () = shutdown() => return Ok(()),
        }
    }
    let http = serve(options.listen, Router::new(), registry);
    let messages = async { inbox.run(handler, shutdown()).await.map_err(Failed::from) };
    tokio::try_join!(http, messages)?;
    Ok(())
}

fn source(options: &ConsumerOptions) -> Source {
    match options.broker {
        BrokerName::Kafka => Kafka::new(&options.kafka_brokers, [EVENTS])
            // So long the group waits for a process that was killed.
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

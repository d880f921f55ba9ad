//! A whole system around the relay: Postgres, a broker, a collector of spans, the relay, and the three
//! services of `examples/system`, for the demo and the kill test.
//!
//! All of it is as users run it: the services are the binaries of the example, each with a database of
//! its own, and everything is made by `walrelay init` and by the services' own `init`.

mod client;
mod effects;
mod load;
mod service;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use client::{OrderClient, Reply};
pub use effects::{Effects, effects};
pub use load::{OrderLoad, OrderReport, Payments};
pub use service::Service;

use crate::collector::Collector;
use crate::consumer::{is_read, topics_of};
use crate::kit::{wait_at_most, wait_for};
use crate::process::{self, without_variables};
use crate::relay::{RelayConfig, RelayProcess};
use crate::{Broker, BrokerKind, HarnessError, Postgres, PostgresOptions, Result};

/// One database for each service.
pub const ORDERS: &str = "orders";
pub const NOTIFICATIONS: &str = "notifications";
pub const BILLING: &str = "billing";
/// As the two consumers name themselves to a broker.
const CONSUMERS: [&str; 2] = ["notification", "billing"];
/// Which dead letters a `walrelay dlq` command is about: those of the billing service.
pub const OF_BILLING: [&str; 2] = ["--from", "billing.dlq"];
const TOPIC: &str = "outbox.event.order";
const EXCHANGE: &str = "outbox.events";
const READY_LIMIT: Duration = Duration::from_secs(60);
const SCHEMAS: [(&str, &str); 3] = [
    (ORDERS, include_str!("../../../examples/system/sql/orders.sql")),
    (NOTIFICATIONS, include_str!("../../../examples/system/sql/notifications.sql")),
    (BILLING, include_str!("../../../examples/system/sql/billing.sql")),
];

#[derive(Clone, Copy, Debug)]
pub struct SystemOptions {
    pub broker: BrokerKind,
    /// The levels of retries, as the services read them.
    pub levels: &'static str,
    /// Spans cost time; they are for the demo.
    pub traced: bool,
}

/// The fields are dropped in this order: who uses a service goes before it.
pub struct System {
    pub orders: Service,
    pub notifications: Service,
    pub billing: Service,
    pub relay: RelayProcess,
    pub collector: Collector,
    pub broker: Broker,
    pub postgres: Postgres,
    commands: Commands,
}

impl System {
    pub fn start(options: &SystemOptions) -> Result<System> {
        let postgres = Postgres::start(PostgresOptions::default())?;
        for (database, schema) in SCHEMAS {
            postgres.create_database(database)?;
            postgres.sql(database, schema)?;
        }
        let broker = Broker::start(options.broker)?;
        let collector = Collector::start()?;
        let folder = broker.folder().join("system");
        let mut config = relay_config(&broker, &postgres.url(ORDERS));
        config.extra = format!("[delivery]\nstate_file = {:?}\n", folder.join("state"));
        if options.traced {
            let more = format!("[tracing]\nendpoint = {:?}\n", collector.url());
            config.extra.push_str(&more);
        }
        let commands = Commands::new(&folder, &config)?;
        commands.run(&["init"])?;
        let relay = RelayProcess::start(&commands.binary, &folder.join("relay"), config)?;
        let service = |name: &str, database: &str| {
            let mut env = broker_env(&broker);
            env.push(("DATABASE_URL".into(), postgres.url(database)));
            env.push(("RETRY_LEVELS".into(), options.levels.into()));
            if options.traced {
                env.push(("OTEL_EXPORTER_OTLP_ENDPOINT".into(), collector.url()));
                env.push(("OTEL_BSP_SCHEDULE_DELAY".into(), "100".into()));
            }
            Service::start(name, &folder, env)
        };
        let (notifications, billing) =
            (service("notification-service", NOTIFICATIONS)?, service("billing-service", BILLING)?);
        let orders = service("order-service", ORDERS)?;
        let mut system =
            System { orders, notifications, billing, relay, collector, broker, postgres, commands };
        system.wait_ready()?;
        Ok(system)
    }

    /// Waits until every part answers.
    pub fn wait_ready(&mut self) -> Result<()> {
        for service in [&mut self.orders, &mut self.notifications, &mut self.billing] {
            service.wait_ready(READY_LIMIT)?;
        }
        self.relay.wait_ready(READY_LIMIT)
    }

    /// Waits until both consumers have settled all that the broker has for them. Their databases do
    /// not tell: a repetition that is still to come has changed nothing there.
    pub fn wait_settled(&self, limit: Duration) -> Result<()> {
        let what = "the consumers to settle all messages";
        wait_for(what, limit, Duration::from_millis(100), || Ok(self.is_settled()?.then_some(())))
    }

    fn is_settled(&self) -> Result<bool> {
        let brokers = match &self.broker {
            Broker::Kafka(kafka) => kafka.bootstrap(),
            Broker::RabbitMq(rabbitmq) => return Ok(rabbitmq.quorum_messages()? == 0),
        };
        for consumer in CONSUMERS {
            let mut topics = topics_of(&brokers, &format!("{consumer}.retry."))?;
            topics.push(TOPIC.into());
            if !is_read(&brokers, consumer, &topics)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Waits for a fact of one of the databases; an error says what it was last.
    pub fn wait_for(&self, database: &str, sql: &str, wanted: &str, limit: Duration) -> Result<()> {
        let mut found = String::new();
        let is_so = wait_at_most(limit, Duration::from_millis(20), || {
            found = self.postgres.sql(database, sql)?;
            Ok((found == wanted).then_some(()))
        })?;
        is_so.ok_or_else(|| {
            let what = format!("{sql}: {found} instead of {wanted}");
            HarnessError::Late { what, limit }
        })
    }
}

/// `walrelay` with the system's configuration.
pub struct Commands {
    pub binary: PathBuf,
    pub file: PathBuf,
}

impl Commands {
    fn new(folder: &Path, config: &RelayConfig) -> Result<Commands> {
        let file = config.write(folder, ([127, 0, 0, 1], 0).into())?;
        Ok(Commands { binary: crate::relay::default_binary()?, file })
    }

    /// Runs a command to its end; what it printed. Another exit code than 0 is an error.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--config").arg(&self.file);
        // Whoever runs this may have a relay of their own.
        process::run(without_variables(&mut command, "WALRELAY_"))
    }
}

fn relay_config(broker: &Broker, url: &str) -> RelayConfig {
    match broker {
        Broker::Kafka(kafka) => RelayConfig {
            kafka_extra: format!("topics = [{TOPIC:?}]\npartitions = 4"),
            ..RelayConfig::new(url, kafka.bootstrap())
        },
        Broker::RabbitMq(rabbitmq) => RelayConfig::rabbitmq(url, rabbitmq.amqp_url(), EXCHANGE),
    }
}

fn broker_env(broker: &Broker) -> Vec<(String, String)> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    match broker {
        Broker::Kafka(kafka) => {
            vec![pair("BROKER", "kafka".into()), pair("KAFKA_BROKERS", kafka.bootstrap())]
        }
        Broker::RabbitMq(rabbitmq) => {
            vec![pair("BROKER", "rabbitmq".into()), pair("AMQP_URL", rabbitmq.amqp_url())]
        }
    }
}

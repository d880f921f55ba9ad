//! One service under its name on the command line.

use std::path::Path;
use std::time::Instant;

use walrelay_harness::{HarnessError, Kafka, Postgres, PostgresOptions, RabbitMq, Result};

/// All names, in the order in which they are started.
pub(crate) const ALL: [&str; 3] = ["postgres", "kafka", "rabbitmq"];

pub(crate) enum Service {
    Postgres(Postgres),
    Kafka(Kafka),
    RabbitMq(RabbitMq),
}

impl Service {
    /// Starts it; the line tells people how long that took and where it is.
    pub(crate) fn start(name: &str) -> Result<(Service, String)> {
        let start = Instant::now();
        let service = match name {
            "postgres" => Service::Postgres(Postgres::start(PostgresOptions::default())?),
            "kafka" => Service::Kafka(Kafka::start()?),
            "rabbitmq" => Service::RabbitMq(RabbitMq::start()?),
            other => return Err(HarnessError::Other(format!("no service {other}"))),
        };
        let seconds = start.elapsed().as_secs_f64();
        let line = service.line(&format!("ready in {seconds:.1} s"));
        Ok((service, line))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Service::Postgres(_) => ALL[0],
            Service::Kafka(_) => ALL[1],
            Service::RabbitMq(_) => ALL[2],
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Service::Postgres(postgres) => postgres.url("postgres"),
            Service::Kafka(kafka) => kafka.bootstrap(),
            Service::RabbitMq(rabbitmq) => rabbitmq.amqp_url(),
        }
    }

    pub(crate) fn answers(&self) -> bool {
        match self {
            Service::Postgres(postgres) => postgres.answers(),
            Service::Kafka(kafka) => kafka.answers(),
            Service::RabbitMq(rabbitmq) => rabbitmq.answers(),
        }
    }

    pub(crate) fn line(&self, state: &str) -> String {
        let (pid, folder): (u32, &Path) = match self {
            Service::Postgres(postgres) => (postgres.pid(), postgres.folder()),
            Service::Kafka(kafka) => (kafka.pid(), kafka.folder()),
            Service::RabbitMq(rabbitmq) => (rabbitmq.pid(), rabbitmq.folder()),
        };
        let (name, url) = (self.name(), self.url());
        format!("{name:<9} {state:<15} {url:<46} pid {pid:<8} {}", folder.display())
    }
}

//! One service under its name on the command line.

use std::time::Instant;

use walrelay_harness::{HarnessError, Kafka, Postgres, PostgresOptions, Process, RabbitMq, Result};

/// All names, in the order in which they are started.
pub(crate) const ALL: [&str; 3] = ["postgres", "kafka", "rabbitmq"];

pub(crate) enum Service {
    Postgres(Postgres),
    Kafka(Kafka),
    RabbitMq(RabbitMq),
}

impl Service {
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

    fn parts(&self) -> (&'static str, String, &Process) {
        match self {
            Service::Postgres(postgres) => (ALL[0], postgres.url("postgres"), postgres),
            Service::Kafka(kafka) => (ALL[1], kafka.bootstrap(), kafka),
            Service::RabbitMq(rabbitmq) => (ALL[2], rabbitmq.amqp_url(), rabbitmq),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.parts().0
    }

    pub(crate) fn url(&self) -> String {
        self.parts().1
    }

    pub(crate) fn answers(&self) -> bool {
        match self {
            Service::Postgres(postgres) => postgres.answers(),
            Service::Kafka(kafka) => kafka.answers(),
            Service::RabbitMq(rabbitmq) => rabbitmq.answers(),
        }
    }

    pub(crate) fn line(&self, state: &str) -> String {
        let (name, url, process) = self.parts();
        let (pid, folder) = (process.pid(), process.folder().display());
        let origin = match self {
            Service::RabbitMq(rabbitmq) => format!(" · {}", rabbitmq.origin()),
            Service::Postgres(_) | Service::Kafka(_) => String::new(),
        };
        format!("{name:<9} {state:<15} {url:<46} pid {pid:<8} {folder}{origin}")
    }
}

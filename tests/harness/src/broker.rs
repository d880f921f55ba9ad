//! Kafka or RabbitMQ behind one type, for what is done to either.

use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use crate::process::Process;
use crate::{Kafka, RabbitMq, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    Kafka,
    RabbitMq,
}

impl BrokerKind {
    pub fn name(self) -> &'static str {
        match self {
            BrokerKind::Kafka => "Kafka",
            BrokerKind::RabbitMq => "RabbitMQ",
        }
    }
}

impl FromStr for BrokerKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<BrokerKind, &'static str> {
        match text {
            "kafka" => Ok(BrokerKind::Kafka),
            "rabbitmq" => Ok(BrokerKind::RabbitMq),
            _ => Err("kafka or rabbitmq"),
        }
    }
}

/// A running broker. Dropping it removes it.
pub enum Broker {
    Kafka(Kafka),
    RabbitMq(RabbitMq),
}

impl Broker {
    pub fn start(kind: BrokerKind) -> Result<Broker> {
        Ok(match kind {
            BrokerKind::Kafka => Broker::Kafka(Kafka::start()?),
            BrokerKind::RabbitMq => Broker::RabbitMq(RabbitMq::start()?),
        })
    }

    pub fn kind(&self) -> BrokerKind {
        match self {
            Broker::Kafka(_) => BrokerKind::Kafka,
            Broker::RabbitMq(_) => BrokerKind::RabbitMq,
        }
    }

    pub fn port(&self) -> u16 {
        match self {
            Broker::Kafka(kafka) => kafka.port(),
            Broker::RabbitMq(rabbitmq) => rabbitmq.port(),
        }
    }

    /// Makes the declarations so far survive a kill.
    pub fn sync_declarations(&self) -> Result<()> {
        match self {
            Broker::Kafka(_) => Ok(()),
            Broker::RabbitMq(rabbitmq) => rabbitmq.sync_declarations(),
        }
    }

    pub fn start_again(&mut self) -> Result<()> {
        match self {
            Broker::Kafka(kafka) => kafka.start_again(),
            Broker::RabbitMq(rabbitmq) => rabbitmq.start_again(),
        }
    }
}

impl Deref for Broker {
    type Target = Process;

    fn deref(&self) -> &Process {
        match self {
            Broker::Kafka(kafka) => kafka,
            Broker::RabbitMq(rabbitmq) => rabbitmq,
        }
    }
}

impl DerefMut for Broker {
    fn deref_mut(&mut self) -> &mut Process {
        match self {
            Broker::Kafka(kafka) => kafka,
            Broker::RabbitMq(rabbitmq) => rabbitmq,
        }
    }
}

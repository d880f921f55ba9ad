//! The brokers from which an inbox can read.

/// Where the messages come from.
#[derive(Clone)]
pub enum Source {
    #[cfg(feature = "kafka")]
    Kafka(crate::Kafka),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(crate::RabbitMq),
}

#[cfg(feature = "kafka")]
impl From<crate::Kafka> for Source {
    fn from(kafka: crate::Kafka) -> Source {
        Source::Kafka(kafka)
    }
}

#[cfg(feature = "rabbitmq")]
impl From<crate::RabbitMq> for Source {
    fn from(rabbit: crate::RabbitMq) -> Source {
        Source::RabbitMq(rabbit)
    }
}

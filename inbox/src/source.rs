//! The brokers from which an inbox can read.

/// Where the messages come from.
#[derive(Clone, Debug)]
pub enum Source {
    #[cfg(feature = "kafka")]
    Kafka(crate::Kafka),
}

#[cfg(feature = "kafka")]
impl From<crate::Kafka> for Source {
    fn from(kafka: crate::Kafka) -> Source {
        Source::Kafka(kafka)
    }
}

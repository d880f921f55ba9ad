//! Kafka.

pub mod properties;

//! Apache Kafka through librdkafka's idempotent producer.
//!
//! `enable.idempotence` keeps the order within a partition and excludes duplicates through
//! librdkafka's own retries; [`properties`] refuses settings that would break this. Batches need no
//! setting: with `linger.ms=0` a single event leaves at once, and with only two requests in flight
//! a backlog gathers behind them and leaves as full batches.
//!
//! The decisions of the sink are in `walrelay_core::sink::kafka`; [`producer`] is its port to
//! librdkafka.

mod answer_ffi;
mod bench_target;
mod broker;
mod brokers_ffi;
mod certificate_files;
mod cluster;
mod code;
mod dead_letters;
mod doctor;
mod link_security;
mod producer;
mod producer_ffi;
mod properties;
mod reachability;
mod record_ffi;
mod sasl_login;
mod scan;
mod search;
mod settings;
mod sockets_ffi;
#[cfg(test)]
mod testing;
mod topic_reader;
mod topic_settings;

pub use self::broker::SINK;
pub use self::producer::KafkaBroker;
pub use self::settings::KafkaSettings;

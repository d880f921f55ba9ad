//! Apache Kafka through librdkafka's idempotent producer.
//!
//! `enable.idempotence` keeps the order within a partition and excludes duplicates through
//! librdkafka's own retries; [`properties`] refuses settings that would break this. Batches need no
//! setting: with `linger.ms=0` a single event leaves at once, and with only two requests in flight
//! a backlog gathers behind them and leaves as full batches.
//!
//! An event goes straight to the normal producer and is not copied, unless its partition is not
//! warmed up yet ([`partition_warmup`]), an event of its key has failed ([`isolated_producer`]) or
//! is unconfirmed at another destination ([`key_order`]), or the login may not write its topic
//! ([`forbidden_topics`]).

mod answer_ffi;
mod bench_target;
pub(super) mod broker;
mod brokers_ffi;
mod client;
mod cluster;
mod connection_errors;
mod dead_letters;
mod doctor;
mod fault;
mod forbidden_topics;
mod in_flight;
mod isolated_producer;
mod key_order;
mod lost_brokers;
mod partition_warmup;
mod producer_ffi;
mod properties;
mod publish;
mod reachability;
mod record;
mod record_ffi;
mod record_limit;
mod search;
pub mod settings;
mod topic_reader;

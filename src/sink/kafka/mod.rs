//! Apache Kafka through librdkafka's idempotent producer.
//!
//! Order within a key and freedom from duplicates across librdkafka's own retries come from
//! `enable.idempotence`; what would break them is refused by [`properties`]. Batching is adaptive
//! without a knob: `linger.ms=0` lets a lone event leave at once, and with only two requests in
//! flight a backlog gathers behind them and leaves as full batches.
//!
//! An event goes straight to the normal producer, and no copy of it is kept; unless its partition is
//! not warmed up yet ([`partition_warmup`]), an event of its key has failed ([`isolated_producer`])
//! or is unconfirmed at another destination ([`key_order`]).

mod answer_ffi;
mod bench_target;
pub(super) mod broker;
mod client;
mod dead_letters;
mod doctor;
mod fault;
mod in_flight;
mod isolated_producer;
mod key_order;
mod partition_warmup;
mod producer_ffi;
pub mod properties;
mod publish;
mod record_ffi;
mod record_limit;
pub mod settings;

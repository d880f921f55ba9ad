//! Apache Kafka through librdkafka's idempotent producer: what the sink decides.
//!
//! An event goes straight to the normal producer and is not copied, unless its partition is not
//! warmed up yet ([`partition_warmup`]), an event of its key has failed ([`isolated_producer`]) or
//! is unconfirmed at another destination ([`key_order`]), or the login may not write its topic
//! ([`forbidden_topics`]).
//!
//! The producers are behind a port ([`port`]), and the time is an argument.

mod client;
pub mod code;
mod events;
pub mod fault;
mod forbidden_topics;
mod isolated_producer;
mod key_order;
mod learned;
mod partition_warmup;
pub mod port;
pub mod publish;
pub mod reachability;
pub mod record;
pub mod record_limit;

pub use self::code::Code;
pub use self::learned::Learned;
pub use self::publish::KafkaSink;

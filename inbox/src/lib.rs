//! Lets each message of a broker take effect once in the consumer's Postgres.
//!
#![doc = include_str!("../README.md")]

#[cfg(not(any(feature = "kafka", feature = "rabbitmq")))]
compile_error!("walrelay-inbox needs a broker: enable the feature `kafka` or `rabbitmq`");

mod breaker;
mod broker;
mod classify;
mod connection;
mod copies;
mod decision;
mod delivery;
mod error;
mod handler;
mod hold;
mod inbox;
#[cfg(feature = "kafka")]
mod kafka;
mod lanes;
mod login;
mod message;
mod metrics;
mod panics;
mod process;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod retention;
mod settings;
mod source;
mod span;
mod store;
#[cfg(test)]
mod testing;
mod time;
mod waiting;

pub use classify::classify;
pub use error::InboxError;
pub use handler::{Failure, Handler};
pub use inbox::Inbox;
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
pub use message::Message;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::{ConnectAmqp, RabbitMq};
pub use settings::{Connect, Settings};
pub use source::Source;

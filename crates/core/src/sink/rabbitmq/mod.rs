//! Decisions of the RabbitMQ sink, which publishes confirmed, mandatory, persistent messages in
//! order per key.
//!
//! [`publisher::Publisher`] takes events and what the broker says, and decides what is sent and
//! reported; [`port::AmqpPort`] is the way out of it. [`publish::RabbitSink`] is the sink over both. Each destination has channels of its own
//! ([`channels`]), so that a queue that confirms nothing stops no other. An event is confirmed when
//! the broker has acked it *and* has not returned it ([`in_flight`]). Until then it is kept
//! ([`crate::sink::key_lanes`]), so that it can be sent again after a lost connection.

pub mod answer;
mod channels;
pub mod connection_loss;
pub mod exchanges;
pub mod fault;
mod in_flight;
pub mod limits;
pub mod message;
pub mod port;
pub mod publish;
pub mod publisher;
mod refusals;
#[cfg(test)]
mod testing;

//! RabbitMQ, with lapin for all but publishes ([`multiplexer`]): confirmed, mandatory, persistent, in order per key.
//!
//! A thread of its own owns the connection ([`publisher`]); the data thread hands
//! events over, collects reports and waits for neither. Each destination has channels of its own
//! ([`channels`]), so that a queue that confirms nothing stops no other. An event is confirmed when
//! the broker has acked it *and* has not returned it ([`in_flight`]). Until then it
//! is kept ([`crate::sink::key_lanes`]), so that it can be sent again after a lost
//! connection. The relay's window bounds what the threads hand to each other.

mod answers;
mod bench_target;
pub(super) mod broker;
mod channels;
mod connection;
mod connection_loss;
mod dead_letters;
mod deadline;
mod doctor;
mod fault;
mod in_flight;
mod init;
mod limits;
mod management;
mod message;
mod multiplexer;
mod probe;
mod publish;
mod publish_frames;
mod publisher;
mod refusals;
mod search;
mod settings;
mod setup_faults;
#[cfg(test)]
mod testing;
mod tls;
mod uri;

//! RabbitMQ, with lapin for all but publishes ([`multiplexer`]).
//!
//! A thread of its own owns the connection ([`driver`]); the data thread hands events over,
//! collects reports and waits for neither. What is decided, and why, is in
//! [`walrelay_core::sink::rabbitmq`]. The relay's window bounds what the threads hand to each other.

mod answers;
mod bench_target;
pub(super) mod broker;
mod connection;
mod dead_letters;
mod deadline;
mod doctor;
mod driver;
mod init;
mod lapin_error;
mod management;
mod multiplexer;
mod probe;
mod publish;
mod publish_frames;
mod search;
mod settings;
mod setup_faults;
mod tls;
mod uri;

use walrelay_core::sink::rabbitmq::{
    answer, connection_loss, exchanges, fault, limits, message, port, publisher,
};

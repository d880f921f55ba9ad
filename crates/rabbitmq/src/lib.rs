//! RabbitMQ. Events are published on a connection of their own ([`publish_connection`]), by the data
//! thread, which never waits for it; a thread is started for each attempt to connect. lapin holds
//! other connections, for questions, declarations and streams ([`connection`]). What is decided, and
//! why, is in [`walrelay_core::sink::rabbitmq`].

mod bench_target;
mod broker;
mod connection;
mod dead_letters;
mod dial;
mod doctor;
mod init;
mod lapin_error;
mod outgoing;
mod probe;
mod publish;
mod publish_connection;
mod publish_login;
mod publish_port;
mod rights;
mod settings;
mod setup_faults;
mod tls;
mod uri;

pub use self::broker::SINK;
use walrelay_core::sink::rabbitmq::{
    answer, connection_loss, exchanges, fault, limits, message, port, publisher,
};

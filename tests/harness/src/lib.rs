//! Real services for tests, demo and benchmarks.
//!
//! PostgreSQL, Apache Kafka and RabbitMQ run as private processes on free loopback ports, each in
//! a folder of its own, without containers. Invariant: no service outlives its starter, however
//! the starter ends (see [`guard`]). A service that cannot be started is an error that says how to
//! mend it, never a reason to skip a test.
//!
//! On top of them the kit: [`load`] fills outboxes, [`relay`] runs the relay under test,
//! [`consumer`] and [`rabbit`] read what arrived, [`oracle`] judges it exactly, [`proc`] tells
//! what it cost. [`bench`] and [`faults`] are what benchmarks and kill tests share.
//! [`system`] is a whole installation with services of users. [`demo`] plays all of it for people.

pub mod amqp;
pub mod bench;
#[cfg(feature = "system")]
pub mod collector;
pub mod consumer;
pub mod demo;
pub mod faults;
pub mod kafka_acl;
pub mod kit;
pub mod load;
pub mod oracle;
pub mod peers;
pub mod proc;
pub mod program;
pub mod proxy;
pub mod rabbit;
pub mod relay;
#[cfg(feature = "system")]
pub mod system;

mod broker;
mod cluster;
mod error;
mod guard;
mod install;
mod kafka;
mod place;
mod ports;
mod postgres;
mod process;
mod prometheus;
mod rabbitmq;
mod silent_node;

pub use broker::{Broker, BrokerKind};
pub use error::{HarnessError, Result, other};
pub use install::{cache_folder, run_folder};
pub use kafka::{Kafka, KafkaListener, KafkaOptions};
pub use ports::free as free_port;
pub use postgres::{Postgres, PostgresOptions};
pub use process::Process;
pub use prometheus::{Prometheus, promtool};
pub use rabbitmq::{RabbitMq, RabbitOptions, SuspendedQueue};
pub use silent_node::silent_node;

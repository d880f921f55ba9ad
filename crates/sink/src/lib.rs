//! The interface between the program and the crates of its sinks: what a kind of broker is, how it is configured, and how
//! its topics are read.
//!
//! The sink itself is [`walrelay_core::sink::Sink`].

pub mod bench_target;
pub mod broker;
pub mod log;
pub mod search;
pub mod settings;
pub mod topic_reader;

pub use self::broker::{
    Broker, Configure, Requirements, RouteRules, SinkKind, StartupCheck, UNREACHABLE, factory,
};
pub use walrelay_core::sink::publish::{
    self, Disposition, ErrorRow, Failure, PublishError, Sink, SinkReport,
};

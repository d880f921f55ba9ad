//! Real services for tests, demo and benchmarks.

pub mod consumer;
pub mod kit;
pub mod load;
pub mod oracle;
pub mod proc;
pub mod relay;
pub mod stats;

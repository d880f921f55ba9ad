//! Brokers.

pub mod kafka;
pub mod settings;

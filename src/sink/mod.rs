//! Brokers.

pub mod settings;

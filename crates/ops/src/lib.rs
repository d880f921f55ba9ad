//! The state of a running relay for its operator: metrics, health, and spans of published events.

pub mod adapters;
pub mod health;
pub mod metrics;
pub mod trace;

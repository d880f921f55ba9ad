//! Rows of an outbox table, and logical messages, as events.

pub mod settings;
pub mod template;

//! Polling: the outbox without a slot. Rows are claimed, published and marked.

pub mod settings;

//! walrelay carries outbox events from a Postgres replication slot to a broker, and lets Postgres
//! forget them only once the broker has confirmed.
//!
//! Modules in the order an event passes them: [`source`] reads the slot, [`pgoutput`] decodes it,
//! [`outbox`] turns rows into events and routes them, `format` shapes payloads, [`delivery`]
//! remembers what is unconfirmed, [`sink`] publishes, [`relay`] is the loop that joins them.

pub(crate) mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod dead_letter;
pub mod doctor;
pub mod features;
pub(crate) mod find;
pub mod polling;
pub mod relay;
pub mod sink;

pub use walrelay_base as base;
pub use walrelay_core::{delivery, format, outbox, pgoutput};
pub use walrelay_ops::{health, metrics, trace};
pub use walrelay_postgres as source;

//! walrelay carries outbox events from a Postgres replication slot to a broker, and lets Postgres
//! forget them only once the broker has confirmed.
//!
//! Modules in the order an event passes them: [`source`] reads the slot, [`pgoutput`] decodes it,
//! [`outbox`] turns rows into events and routes them, [`mod@format`] shapes payloads, [`delivery`]
//! remembers what is unconfirmed, [`sink`] publishes, [`relay`] is the loop that joins them.

pub mod admin;
pub mod app;
pub mod backoff;
pub mod cli;
pub mod compare;
pub mod config;
pub mod dead_letter;
pub mod delivery;
pub mod error;
pub mod ffi;
pub mod follow;
pub mod format;
pub mod health;
pub mod html;
pub mod letter;
pub mod lsn;
pub mod message;
pub mod metrics;
pub mod outbox;
pub mod percent;
pub mod pgoutput;
pub mod polling;
pub mod relay;
pub mod secret;
pub mod sink;
pub mod source;
pub mod text;
pub mod time;
pub mod tls;
pub mod watch;

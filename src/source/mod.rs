//! Postgres as the source: connections, the catalog, the slot, and the replication stream.

pub(crate) mod catalog;
pub mod connect;
pub mod conninfo;
pub(crate) mod detect;
pub(crate) mod emit;
pub(crate) mod facts;
pub(crate) mod faults;
pub(crate) mod idle_timeout;
pub(crate) mod init;
pub(crate) mod json_row;
mod login_files;
pub(crate) mod oldest_transaction;
pub mod passfile;
pub(crate) mod publication;
mod row_filter;
pub(crate) mod sampled_topics;
pub(crate) mod slot;
pub(crate) mod slot_state;
pub(crate) mod slot_wait;
pub mod sql;
pub mod tls;
pub(crate) mod walsender;
pub mod wire;

pub use walrelay_core::source::{
    progress, quote, require_auth, server, settings, sightings, stream,
};

#[cfg(test)]
pub(crate) mod testing;

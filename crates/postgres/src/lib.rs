//! Postgres as the source: connections, the catalog, the slot, and the replication stream.

pub mod catalog;
pub mod connect;
pub mod conninfo;
pub mod detect;
pub mod doctor;
pub mod emit;
pub mod facts;
pub mod faults;
pub mod idle_timeout;
pub mod init;
pub mod json_row;
mod login_files;
pub mod oldest_transaction;
pub mod passfile;
pub mod publication;
mod row_filter;
pub mod sampled_topics;
pub mod slot;
pub mod slot_state;
pub mod slot_wait;
pub mod smart_shutdown;
pub mod sql;
pub mod tls;
pub mod walsender;
pub mod wire;

pub use walrelay_core::source::{
    progress, quote, require_auth, server, settings, sightings, stream,
};

#[cfg(any(test, feature = "testing"))]
pub mod testing;

//! The slot: connecting, checking, reading, and telling Postgres what it may forget.

pub mod catalog;
pub mod connect;
pub mod conninfo;
pub mod facts;
pub mod holder;
pub mod init;
pub mod passfile;
pub mod progress;
pub mod publication;
pub mod quote;
pub mod read_pacing;
pub mod require_auth;
pub mod rows;
pub mod settings;
pub mod slot;
pub mod sql;
pub mod stream;
pub mod table;
pub mod tls;
pub mod transport;
pub mod walsender;
pub mod watch;

#[cfg(test)]
pub(crate) mod testing;

//! The slot: connecting, checking, reading, and telling Postgres what it may forget.

pub mod connect;
pub mod conninfo;
pub mod facts;
pub mod init;
pub mod pace;
pub mod passfile;
pub mod preflight;
pub mod progress;
pub mod publication;
pub mod quote;
pub mod require_auth;
pub mod settings;
pub mod slot;
pub mod sql;
pub mod stream;
pub mod table;
pub mod tls;
pub mod transport;
pub mod watch;

#[cfg(test)]
pub(crate) mod testing;

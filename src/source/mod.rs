//! The slot: connecting, checking, reading, and telling Postgres what it may forget.

pub mod facts;
pub mod init;
pub mod preflight;
pub mod publication;
pub mod quote;
pub mod settings;
pub mod slot;
pub mod sql;
pub mod table;
pub mod watch;

#[cfg(test)]
pub(crate) mod testing;

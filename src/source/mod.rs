//! The slot: connecting, checking, reading, and telling Postgres what it may forget.

pub mod facts;
pub mod init;
pub mod preflight;
pub mod publication;
pub mod quote;
pub mod conninfo;
pub mod settings;
pub mod pace;
pub mod progress;
pub mod stream;
pub mod slot;
pub mod sql;
pub mod table;
pub mod watch;

#[cfg(test)]
mod testing;
pub mod conninfo;
pub mod passfile;
pub mod settings;
pub mod tls;

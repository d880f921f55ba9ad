//! The slot: connecting, checking, reading, and telling Postgres what it may forget.

pub mod connect;
pub mod conninfo;
pub mod passfile;
pub mod settings;
pub mod sql;
pub mod tls;
pub mod transport;

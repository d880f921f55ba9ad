//! Finds what could keep the relay from reading a slot, without changing anything. `facts` queries
//! Postgres; this module judges the answers, for `check` and for the start of the relay alike.

pub mod publication_age;
pub mod server;
pub mod slot;
pub mod source;

#[cfg(test)]
mod fingerprint_tests;

pub use walrelay_core::doctor::{fingerprint, publication, tables};

#[cfg(test)]
#[path = "init_tests.rs"]
mod init_tests;

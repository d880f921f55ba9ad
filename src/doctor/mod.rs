//! Finds what could keep the relay from working, without changing
//! anything. `source` and `polling` query Postgres; this module judges
//! the answers, for `check` and for the start of the relay alike.

pub(crate) mod polled_columns;
pub(crate) mod polled_rows;
pub(crate) mod polled_table;
pub(crate) mod publication_age;
pub(crate) mod server;
pub(crate) mod slot;
pub(crate) mod source;
pub(crate) mod status_values;

#[cfg(test)]
mod fingerprint_tests;

pub use walrelay_core::doctor::{fingerprint, publication, tables};

#[cfg(test)]
#[path = "init_tests.rs"]
mod init_tests;

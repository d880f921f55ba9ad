//! What could keep the relay from working, found by asking Postgres without changing anything.
//!
//! What Postgres says is asked in `source` and `polling`; here it is judged. Everything is judged for
//! `check` by the functions that the relay itself starts with.

pub mod fingerprint;
pub(crate) mod polled_columns;
pub(crate) mod polled_table;
pub(crate) mod publication;
pub(crate) mod publication_age;
pub(crate) mod server;
pub(crate) mod slot;
pub(crate) mod source;
pub(crate) mod status_values;
pub(crate) mod tables;

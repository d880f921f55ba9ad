//! What could keep the relay from working, found by asking Postgres without changing anything.

pub mod finding;
pub mod polled_columns;
pub mod polled_table;
pub mod source;

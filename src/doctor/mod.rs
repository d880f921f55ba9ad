//! Finds what could keep the relay from polling a table, without changing anything.
//! [`walrelay_postgres::doctor`] does so for a slot.

pub(crate) mod polled_columns;
pub(crate) mod polled_rows;
pub(crate) mod polled_table;
pub(crate) mod status_values;

pub(crate) use walrelay_postgres::doctor::{fingerprint, publication_age, server, source, tables};

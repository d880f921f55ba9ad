//! Appends events to a local file, one JSON document a line, for trying walrelay out and for audits.
//!
//! An event is confirmed once `fdatasync` has returned for the line that holds it. A thread of its
//! own writes: it takes everything that waits, appends it with one write, and syncs once. An error
//! of the file is never about one event, so it is an outage: the lines are kept and written again.
//! Nothing is read back: dead letters are lines of a second file.

mod append;
pub(super) mod broker;
mod fault;
mod publish;
mod record;
pub(super) mod settings;

#[cfg(test)]
mod testing;

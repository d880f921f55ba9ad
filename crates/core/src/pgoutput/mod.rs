//! Decodes pgoutput, protocol version 1, which Postgres 14 to 18 send.
//!
//! Version 1 without streaming means that every transaction arrives whole and committed, in commit
//! order, between a Begin and a Commit; nothing ever has to be taken back. Order of reading:
//! [`cursor`], [`frame`], [`message`], [`relation`].

pub mod cursor;
#[cfg(any(test, feature = "testing"))]
pub mod encoder;
pub mod frame;
pub mod message;
pub mod relation;

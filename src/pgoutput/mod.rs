//! pgoutput, protocol version 1: bytes to messages. Pure, borrowing, without allocation.
//!
//! Version 1 with streaming off means that every transaction arrives whole and committed, in commit
//! order, between a Begin and a Commit; nothing ever has to be taken back. Postgres 14 to 18 speak
//! it. Order of reading: [`cursor`], [`frame`], [`message`], [`relation`].

pub mod cursor;
#[cfg(test)]
#[path = "encoder_tests.rs"]
pub(crate) mod encoder;
pub mod frame;
pub mod message;
pub mod relation;

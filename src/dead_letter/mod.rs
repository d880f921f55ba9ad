//! The dead-letter topic, read and resolved: the engine below `walrelay dlq` and the admin API.
//!
//! The topic is a log and the only store: letters and resolutions are appended, nothing is ever
//! changed. [`record`] says what a record is, [`fold`] what is open once all of them are read,
//! [`filter`] which of them are meant. [`archive`] reads, [`replay`] and [`release`] act, [`follower`]
//! is how a relay keeps up with it.

pub mod clock;
mod confirmed_publish;
pub mod filter;
pub mod find;
pub mod fit;
pub mod fold;
pub mod follower;
mod identity;
mod open;
mod pipeline;
pub mod rate;
pub mod reader;
pub mod record;
pub mod release;
pub mod replay;
mod replay_guard;
pub mod tail;
pub mod tail_event;
#[cfg(test)]
mod testing;
pub mod view;
pub mod writer;

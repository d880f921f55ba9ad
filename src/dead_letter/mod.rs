//! Dead letters: the records that a relay writes, and the topic that holds them, read and resolved;
//! the engine below `walrelay dlq` and the admin API.
//!
//! The topic is a log and the only store: letters and resolutions are appended, nothing is ever
//! changed. [`writer`] makes a letter and [`fit`] cuts it to size, [`record`] is what is read back,
//! [`fold`] says what is open once all records are read, [`filter`] which letters are meant.
//! [`reader`] reads, [`replay`] and [`release`] act, [`tail`] keeps a running relay up to date.

pub(crate) mod filter;
pub(crate) mod fit;
pub(crate) mod fold;
mod open_letters;
mod parse;
mod publish;
pub(crate) mod rate;
pub(crate) mod reader;
pub mod record;
pub(crate) mod release;
pub(crate) mod replay;
mod replay_guard;
mod replay_pipeline;
pub(crate) mod tail;
pub mod tail_event;
#[cfg(test)]
mod testing;
pub(crate) mod view;
pub mod writer;

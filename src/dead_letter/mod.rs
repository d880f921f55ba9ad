//! Dead letters: the records that a relay writes, and the topic that holds them.
//!
//! The topic is a log and the only store: dead letters and resolutions are appended, nothing is
//! ever changed, and what is open is a fold over the log. [`writer`] makes a dead letter and
//! [`fit`] cuts it, [`record`] is what is read back, [`fold`] says what is open. [`reader`],
//! [`filter`], [`replay`], [`release`] and [`purge`] serve `walrelay dlq` and the admin API,
//! [`replay_check`] says what a replay passes over, and [`destinations`] where it may go; [`tail`] keeps a
//! running relay up to date with what [`owner`] says is its own.

pub(crate) mod destinations;
pub(crate) mod filter;
pub(crate) mod others;
pub(crate) mod passed_over;
mod pipeline;
pub(crate) mod purge;
pub(crate) mod rate;
pub(crate) mod reader;
pub(crate) mod release;
pub(crate) mod replay;
pub(crate) mod replay_check;
mod replay_guard;
pub(crate) mod stop_log;
pub(crate) mod tail;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod view;

pub use walrelay_core::dead_letter::{
    fit, fold, owner, parse, record, tail_event, topic_stops, writer,
};

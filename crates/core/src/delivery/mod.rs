//! Events that are admitted and not yet confirmed, and which WAL Postgres may therefore discard.
//!
//! | an event is | known to | until |
//! |---|---|---|
//! | received | [`transactions`], [`history`] | it turns out to be new; a repetition is skipped |
//! | confirmed by an earlier process | [`known`], [`prefix`], [`stored`] | it is received, and passed over |
//! | admitted | [`flights`] | the sink confirms it |
//! | settled | [`transactions`] | all of its transaction and of those before it are settled |
//! | reported | Postgres | – its position is in a status update |
//!
//! All of it is pure: no clock, no socket. The simulation (`crates/simulation`) checks the invariants:
//!
//! * I1 What is reported never exceeds the settled LSN, and never goes down.
//! * I2 Settled means confirmed by the broker: at its destination, or in the dead-letter topic.
//! * I3 An event without a report, or with a failed or unknown one, is unsettled.
//! * I4 A transaction settles at a position within its commit record, only when it and all earlier ones are settled.
//! * I5 With nothing unconfirmed and no open transaction, a keepalive's position counts as settled.
//! * I6 Within one key, events are handed to the sink in commit order, each once, except that a
//!   rebuilt sink or a new process may send the last events again.
//! * I7 A full window stops intake, never status updates.

pub mod breaker;
mod confirm_time;
pub mod flight;
pub mod flights;
pub mod history;
pub mod in_flight_limit;
pub mod known;
mod overtaken;
pub mod parked;
pub mod prefix;
pub mod retry;
pub mod settings;
pub mod stored;
pub mod transactions;

#[cfg(test)]
mod repetition_model_tests;

//! The decisions of walrelay.

pub mod base;
pub mod dead_letter;
pub mod delivery;
pub mod doctor;
pub mod format;
pub mod health;
pub mod metrics;
pub mod mutants;
pub mod outbox;
pub mod pgoutput;
pub mod polling;
pub mod relay;
pub mod sink;
pub mod source;
#[cfg(test)]
mod testing;
pub mod trace;

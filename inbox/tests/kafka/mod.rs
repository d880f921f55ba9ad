//! The inbox on Kafka.

mod crash;
mod delivery;
pub(crate) mod fixture;
mod holds;
mod outages;
mod rebalance;
mod retention;
mod retries;
mod tables;

//! The inbox on Kafka.

mod crash;
mod delivery;
mod fixture;
mod outages;
mod rebalance;
mod retention;
mod retries;
mod tables;

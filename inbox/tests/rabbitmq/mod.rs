//! The inbox on RabbitMQ.

mod crash;
mod delivery;
pub(crate) mod fixture;
mod foreign;
mod outages;
mod rights;

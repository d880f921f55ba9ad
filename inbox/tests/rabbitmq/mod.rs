//! The inbox on RabbitMQ.

mod crash;
mod delivery;
mod fixture;
mod foreign;
mod outages;
mod retries;
mod rights;

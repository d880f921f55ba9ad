//! The inbox on RabbitMQ.

mod crash;
mod delivery;
mod fixture;
mod outages;
mod retries;

//! What tests, demo and benchmarks rely on: that the services which the harness starts end, come
//! back and keep what they had, and that its writers, readers and comparisons tell the truth.

mod kafka;
mod kit_kafka;
mod kit_postgres;
mod kit_rabbitmq;
mod postgres;
mod rabbitmq;

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

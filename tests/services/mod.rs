//! Tests of the harness, on which tests, demo and benchmarks rely: the services that it starts end,
//! come back and keep what they had, and its writers, readers and comparisons report the truth.

mod kafka;
mod kit_kafka;
mod kit_postgres;
mod kit_rabbitmq;
mod postgres;
mod rabbitmq;

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

//! The harness itself against real services.

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

mod kafka;
mod kit_kafka;
mod kit_postgres;
mod kit_rabbitmq;
mod postgres;
mod rabbitmq;
mod services;

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

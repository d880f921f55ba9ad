//! The relay as its users run it: the real binary against a real PostgreSQL and a real Kafka.
//!
//! One binary, so that all of it shares one set of services (see `support`).

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

mod support;

mod bad_input;
mod compare;
mod dead_letters;
mod dlq;
mod e2e;
mod features;
mod polling;

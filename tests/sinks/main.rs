//! The sinks alone, driven as the relay drives them: against a scripted broker that does what a
//! real one does once a year, against real ones, and all of them against one suite.

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

mod amqp;
mod conformance;
mod hand;
mod reading;
mod section;

mod blocked;
mod closes;
mod kafka_batches;
mod kafka_log;
mod links;
mod names;
mod rabbit_letters;
mod rabbit_log;
mod rabbit_patience;
mod real;
mod schedules;

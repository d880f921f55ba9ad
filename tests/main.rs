//! The relay as its users run it: the real binary against real services; and its parts that talk to
//! them, alone.
//!
//! One binary, so that all of it is linked once and shares one set of services (see `support`).

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

// The paths of `src/sink/testing.rs`, which unit tests hold too.
use walrelay::{base, dead_letter, sink};

mod support;

mod bad_input;
mod compare;
mod connect;
mod console;
mod dashboards;
mod dead_letters;
mod dlq;
mod e2e;
mod features;
mod find;
mod libraries;
mod polling;
mod postgres19;
mod services;
mod sinks;
mod snippets;
mod traces;

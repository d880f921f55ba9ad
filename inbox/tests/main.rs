//! The inbox against real services. What a message does in the handler stands in its value
//! ([`support::Script`]).

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

mod support;

mod both;
mod kafka;
mod rabbitmq;

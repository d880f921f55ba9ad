//! AMQP 0-9-1 for a publisher that waits for confirms: the frames, the login, and the state of an
//! open connection.
//!
//! The crate has no socket, no thread and no clock. [`login::Login`] and [`session::Session`] take
//! the frames that have arrived, append the bytes that are to be sent, and get the time as an
//! argument. Declarations and consumers are not part of it.

pub mod content;
pub mod frame;
pub mod login;
pub mod method;
pub mod session;
pub mod wire;

#[cfg(test)]
mod codec_tests;

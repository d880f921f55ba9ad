//! The system against real services.

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

mod kill;
mod orders;
mod stop;

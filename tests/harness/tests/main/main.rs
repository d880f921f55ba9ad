//! The harness itself, with real services.

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

mod services;

//! The promises, kept against real services. One binary, so that the services start once.

// The lint spares test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod e2e;
mod support;

//! The slot: its settings, and which position may be reported to it.

pub mod progress;
pub mod require_auth;
pub mod settings;

//! Payload formats.

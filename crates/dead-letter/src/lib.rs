//! What a relay and its consumers (`walrelay-inbox`) agree on: the headers of dead letters and of what is replayed,
//! times as text, and the waits between attempts. It depends on no other crate.

pub mod backoff;
pub mod header;
pub mod text;
pub mod time;

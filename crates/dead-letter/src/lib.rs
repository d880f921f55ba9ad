//! The contract of a relay and its consumers (`walrelay-inbox`): the headers of dead letters and of replayed events,
//! times as text, and the waits between attempts. The crate depends on no other crate.

pub mod backoff;
pub mod header;
pub mod text;
pub mod time;

//! The spans of the sampled events in flight.

pub mod context;
pub mod event_spans;
pub mod sampler;
pub mod span;

//! What a sink does with events, and the order in which it may send them.

pub mod kafka;
pub mod key_lanes;
pub mod publish;

pub use self::publish::{
    Disposition, ErrorRow, Failure, PublishError, PublishLimits, Sink, SinkReport,
};

//! Contract of a sink, and the order in which it may send events.

pub mod driver;
pub mod kafka;
pub mod key_lanes;
pub mod publish;
pub mod rabbitmq;

pub use self::publish::{Disposition, ErrorRow, Failure, PublishError, Sink, SinkReport};

/// The code of a fault that may pass by waiting: the broker does not answer.
pub const UNREACHABLE: &str = "sink.unreachable";

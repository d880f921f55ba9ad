//! What becomes of events that cannot be published, and their way back: the real relay, the real
//! commands, on Kafka and on RabbitMQ.
//!
//! Each body is told once and holds for both. An event of aggregate type `NAME` has a route, one of
//! `NAME.lost` has none until somebody makes it.

mod api;
mod fixture;
mod halt;
mod kills;
mod outage;
mod oversized;
mod poison;
mod replay;
mod storm;

//! The sinks alone, driven as the relay drives them: against a scripted broker that does what a
//! real one does once a year, against real ones, and all of them against one suite.

mod amqp;
mod conformance;
mod reading;
pub(crate) mod section;
pub(crate) mod test_relay;
/// The broker that unit tests hold, so that the suite tells whether it is like the others.
#[allow(dead_code, reason = "unit tests use the rest")]
#[path = "../../src/sink/testing.rs"]
mod testing;

mod blocked;
mod closes;
mod kafka_batches;
pub(crate) mod kafka_log;
mod kafka_reading;
mod links;
mod names;
mod rabbit_letters;
mod rabbit_log;
mod rabbit_patience;
mod real;
mod schedules;

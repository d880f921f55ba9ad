//! Producers with nothing before them, at a steady rate: the second leg of a latency.

use std::time::Duration;

use walrelay_harness::Result;
use walrelay_harness::kit::now_us;
use walrelay_harness::load::{FRAME_BYTES, KEYS, PAYLOAD_BYTES};
use walrelay_measure::load::Schedule;

use crate::amqp::{Publisher, Shape};
use crate::kafka_ffi::Producer;

/// The payload of event number `event`, as the load's rows have it.
pub(crate) fn payload(event: u64) -> String {
    let pad = "x".repeat((PAYLOAD_BYTES - FRAME_BYTES) as usize);
    format!("{{\"t\": {}, \"pad\": \"{pad}\", \"seq\": {event}}}", now_us())
}

/// Sends, and knows what is confirmed.
pub(crate) trait Bare {
    /// Sends an event at once.
    fn send(&mut self, key: &str, payload: &str) -> Result<()>;
    /// Waits until all are confirmed.
    fn settle(&mut self) -> Result<()>;
}

/// Sends at a rate, and returns the number of events once all are confirmed.
pub(crate) fn pace(bare: &mut dyn Bare, rate: u64, duration: Duration) -> Result<u64> {
    let events = rate * duration.as_secs();
    let schedule = Schedule::start(rate as f64);
    for event in 0..events {
        schedule.wait(event);
        bare.send(&format!("key-{}", event % KEYS), &payload(event))?;
    }
    bare.settle()?;
    Ok(events)
}

impl Bare for Producer {
    fn send(&mut self, key: &str, payload: &str) -> Result<()> {
        while !self.enqueue(key.as_bytes(), payload.as_bytes(), &[])? {
            self.poll(1)?;
        }
        self.poll(0)
    }

    fn settle(&mut self) -> Result<()> {
        Producer::settle(self)
    }
}

/// To RabbitMQ, with the relay's properties.
pub(crate) struct RabbitBare {
    publisher: Publisher,
    shape: Shape,
}

impl RabbitBare {
    pub(crate) fn new(publisher: Publisher, shape: Shape) -> RabbitBare {
        RabbitBare { publisher, shape }
    }
}

impl Bare for RabbitBare {
    fn send(&mut self, _key: &str, payload: &str) -> Result<()> {
        self.publisher.append(&mut self.shape, payload.as_bytes());
        self.publisher.flush()?;
        self.publisher.hear(false)
    }

    fn settle(&mut self) -> Result<()> {
        while self.publisher.unconfirmed() > 0 {
            self.publisher.hear(true)?;
        }
        Ok(())
    }
}

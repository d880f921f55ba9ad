//! Queues read as they fill, by one thread.
//!
//! A broker that goes away is come back to. What was unacknowledged then is given once more, so a
//! test that kills the broker drains the queue at its end instead.

use std::time::Duration;

use super::{Rabbit, record};
use crate::Result;
use crate::amqp::Event;
use crate::consumer::{Mode, Shared};
use crate::kit::now_us;

/// Enough to keep the broker sending, little enough to lie with one consumer.
const PREFETCH: u16 = 1_024;
/// Never more than are on their way, or nothing would move.
const ACK_EVERY: u64 = 256;
const PATIENCE: Duration = Duration::from_millis(20);
const RECONNECT: Duration = Duration::from_millis(100);

/// Reads until told to stop; the place in `queues` is the partition.
pub(crate) fn read(url: &str, queues: &[String], opened: Rabbit, shared: &Shared, mode: Mode) {
    let mut offsets = vec![0; queues.len()];
    let mut rabbit = Some(opened);
    while !shared.is_stopped() {
        let outcome = match rabbit.take().map_or_else(|| Rabbit::open(url), Ok) {
            Ok(opened) => follow(opened, queues, &mut offsets, shared, mode),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            std::thread::sleep(RECONNECT);
        }
    }
}

fn follow(
    mut rabbit: Rabbit,
    queues: &[String],
    offsets: &mut [i64],
    shared: &Shared,
    mode: Mode,
) -> Result<()> {
    rabbit.prefetch(PREFETCH)?;
    for (at, queue) in queues.iter().enumerate() {
        rabbit.consume(queue, &at.to_string())?;
    }
    let mut acked = 0;
    let mut last = 0;
    while !shared.is_stopped() {
        let patience = if last > acked { Duration::ZERO } else { PATIENCE };
        match rabbit.client.event(patience)? {
            Some(Event::Delivery(delivery)) => {
                let at: usize = delivery.consumer.parse().unwrap_or_default();
                let arrived_us = now_us();
                shared.take(&delivery.body, mode, arrived_us, || {
                    let partition = i32::try_from(at).unwrap_or(i32::MAX);
                    record(&delivery, partition, offsets[at], arrived_us)
                });
                offsets[at] += 1;
                last = delivery.tag;
                if last >= acked + ACK_EVERY {
                    rabbit.ack(last)?;
                    acked = last;
                }
            }
            Some(_) => {}
            None if last > acked => {
                rabbit.ack(last)?;
                acked = last;
            }
            None => {}
        }
    }
    rabbit.close();
    Ok(())
}

//! A steady rate of single-row transactions, for latency.
//!
//! Open loop: event `i` is due at `start + i / rate`, whatever became of the one before, and a
//! late one is not excused: its lateness is reported, so a bench can tell a slow relay from a load
//! that fell behind. One thread per connection, because a plain thread wakes within 0.1 ms of its
//! time while a runtime's timers are whole milliseconds, which would send the load in bursts.

use std::time::{Duration, Instant};

use tokio_postgres::Statement;

use super::table_name;
use crate::kit::{Rng, Session, now_us, runtime};
use crate::stats::{Latencies, Percentiles};
use crate::{HarnessError, Result};

/// Which moment the payload's `t` names, in microseconds of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The server's `clock_timestamp()` inside the INSERT: what the peers were measured with.
    Server,
    /// This process's clock right before the INSERT is sent: adds the client's round trip.
    Client,
    /// When the event was due: also counts what the load itself was late.
    Due,
}

/// `rate_per_second` events for `duration`, over several connections.
///
/// Keys are split between connections, so `seq` (the event's number) rises per key.
#[derive(Clone, Debug)]
pub struct SteadyLoad {
    pub url: String,
    pub table: String,
    pub rate_per_second: f64,
    pub duration: Duration,
    pub connections: u64,
    /// Distinct keys; at least one per connection.
    pub keys: u64,
    pub aggregatetype: String,
    pub payload_bytes: usize,
    pub stamp: Stamp,
    /// Makes ids repeatable, and two loads of one table distinct.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct SteadyReport {
    pub events: u64,
    /// Wall clock from the first due time to the last commit.
    pub elapsed: Duration,
    /// How late INSERTs were sent. A p99 in milliseconds says that the load, not the relay, lags.
    pub lateness: Percentiles,
    pub insert: Percentiles,
}

impl SteadyReport {
    /// Events committed in a second.
    pub fn reached_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

#[derive(Default)]
struct Worked {
    events: u64,
    lateness: Latencies,
    insert: Latencies,
}

impl SteadyLoad {
    /// The shape that the peers were measured with, at a rate.
    pub fn new(url: impl Into<String>, rate_per_second: f64, duration: Duration) -> SteadyLoad {
        SteadyLoad {
            url: url.into(),
            table: "public.outbox".into(),
            rate_per_second,
            duration,
            connections: if rate_per_second > 2_000.0 { 8 } else { 4 },
            keys: 1_000,
            aggregatetype: "order".into(),
            payload_bytes: 230,
            stamp: Stamp::Server,
            seed: 1,
        }
    }

    pub fn events(&self) -> u64 {
        (self.rate_per_second * self.duration.as_secs_f64()).round() as u64
    }

    /// Runs to its end. Any failed INSERT fails the load: it is for measuring, not for chaos.
    pub fn run(&self) -> Result<SteadyReport> {
        table_name(&self.table)?;
        if !(self.rate_per_second.is_finite() && self.rate_per_second > 0.0) {
            return Err(HarnessError::Other("a steady load needs a rate above 0".into()));
        }
        // All connect before the first event is due, or the start would be a burst.
        let start = std::sync::Barrier::new(self.connections.max(1) as usize);
        let began = Instant::now();
        let parts: Vec<Result<(Worked, Instant)>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.connections.max(1))
                .map(|connection| {
                    let start = &start;
                    scope.spawn(move || self.connection(connection, start))
                })
                .collect();
            let gone = |_| Err(HarnessError::Other("a load thread panicked".into()));
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(gone)).collect()
        });
        let mut sum = Worked::default();
        let mut first_due = None;
        for part in parts {
            let (worked, due) = part?;
            sum.events += worked.events;
            sum.lateness.merge(&worked.lateness);
            sum.insert.merge(&worked.insert);
            first_due = Some(first_due.map_or(due, |first: Instant| first.min(due)));
        }
        Ok(SteadyReport {
            events: sum.events,
            elapsed: first_due.unwrap_or(began).elapsed(),
            lateness: sum.lateness.percentiles(),
            insert: sum.insert.percentiles(),
        })
    }

    fn connection(&self, connection: u64, start: &std::sync::Barrier) -> Result<(Worked, Instant)> {
        let opened = runtime().and_then(|runtime| {
            let (session, statement) = runtime.block_on(async {
                let session = Session::open(&self.url).await?;
                let statement = session.client.prepare(&self.sql()).await?;
                Ok::<_, HarnessError>((session, statement))
            })?;
            Ok((runtime, session, statement))
        });
        // Only now may a failure leave: a missing worker would hold the others at the barrier.
        start.wait();
        let (runtime, session, statement) = opened?;
        let began = Instant::now() + Duration::from_millis(2);
        let epoch_us = now_us() + 2_000;
        let mut rng = Rng::fork(self.seed, connection);
        let pad = self.pad();
        let mut worked = Worked::default();
        let mut event = connection;
        while event < self.events() {
            let due_in = Duration::from_secs_f64(event as f64 / self.rate_per_second);
            sleep_until(began + due_in);
            let sent = Instant::now();
            let stamp_us = match self.stamp {
                Stamp::Server => None,
                Stamp::Client => Some(now_us()),
                Stamp::Due => Some(epoch_us + i64::try_from(due_in.as_micros()).unwrap_or(0)),
            };
            let key = self.key(event, connection);
            let id = rng.uuid();
            let insert = self.insert(&session, &statement, (&id, &key, event, stamp_us, &pad));
            runtime.block_on(insert)?;
            let late = sent.saturating_duration_since(began + due_in);
            worked.lateness.record_us(i64::try_from(late.as_micros()).unwrap_or(i64::MAX));
            let took = sent.elapsed().as_micros();
            worked.insert.record_us(i64::try_from(took).unwrap_or(i64::MAX));
            worked.events += 1;
            event += self.connections.max(1);
        }
        Ok((worked, began))
    }

    async fn insert(
        &self,
        session: &Session,
        statement: &Statement,
        (id, key, seq, stamp_us, pad): (&str, &str, u64, Option<i64>, &str),
    ) -> Result<()> {
        let seq = i64::try_from(seq).unwrap_or(i64::MAX);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&id, &self.aggregatetype, &key, &stamp_us, &seq, &pad];
        session.client.execute(statement, &values).await?;
        Ok(())
    }

    fn sql(&self) -> String {
        format!(
            "insert into {} (id, aggregatetype, aggregateid, type, payload)
             values ($1::text::uuid, $2, $3, 'created', jsonb_build_object('t',
                     coalesce($4::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint),
                     'seq', $5::bigint, 'pad', $6::text))",
            self.table
        )
    }

    /// A connection's keys are congruent to its number, so that no key has two writers.
    fn key(&self, event: u64, connection: u64) -> String {
        let connections = self.connections.max(1);
        let per_connection = (self.keys / connections).max(1);
        let turn = (event / connections) % per_connection;
        format!("key-{}", turn * connections + connection)
    }

    fn pad(&self) -> String {
        const FRAME_BYTES: usize = 49;
        let mut rng = Rng::new(self.seed);
        let bytes = self.payload_bytes.saturating_sub(FRAME_BYTES);
        (0..bytes).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    }
}

fn sleep_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn no_key_has_two_writers_and_all_keys_are_used() {
        let load = SteadyLoad { connections: 4, keys: 100, ..SteadyLoad::new("", 1e3, secs(1)) };
        let mut writers: HashMap<String, u64> = HashMap::new();
        for event in 0..1_000 {
            let writer = event % 4;
            assert_eq!(*writers.entry(load.key(event, writer)).or_insert(writer), writer);
        }
        assert_eq!(writers.len(), 100);
    }

    #[test]
    fn rate_times_duration_is_the_number_of_events() {
        assert_eq!(SteadyLoad::new("", 100.0, secs(30)).events(), 3_000);
        assert!(SteadyLoad::new("", 0.0, secs(1)).run().is_err());
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}

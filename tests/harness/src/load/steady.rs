//! A steady rate of single-row transactions, for latency: an even load (see [`walrelay_measure::load`]) of the
//! outbox.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use walrelay_measure::load::{Pace, steady};

use super::table_name;
use crate::kit::{Rng, Session, runtime};
use crate::{HarnessError, Result};

/// `rate_per_second` events for `duration`, over several connections.
///
/// The payload's `t` is the server's `clock_timestamp()` inside the INSERT. Keys are split between connections, so
/// `seq` (the event's number) rises per key.
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
    /// Makes ids repeatable, and two loads of one table distinct.
    pub seed: u64,
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
            seed: 1,
        }
    }

    pub fn events(&self) -> u64 {
        (self.rate_per_second * self.duration.as_secs_f64()).round() as u64
    }

    /// Runs to its end. Any failed INSERT fails the load: it is for measuring, not for chaos.
    pub fn run(&self) -> Result<Pace> {
        table_name(&self.table)?;
        if !(self.rate_per_second.is_finite() && self.rate_per_second > 0.0) {
            return Err(HarnessError::Other("a steady load needs a rate above 0".into()));
        }
        // All connect before the first event is due, or the start would be a burst.
        let pad = self.pad();
        let connections = 0..self.connections.max(1);
        let writers = connections.map(|connection| self.writer(connection, &pad));
        let writers = writers.collect::<Result<Vec<_>>>()?;
        steady(writers, 0..self.events(), self.rate_per_second, &AtomicBool::new(false))
    }

    /// Opens a connection that writes the events of that number.
    fn writer<'a>(
        &'a self,
        connection: u64,
        pad: &'a str,
    ) -> Result<impl FnMut(u64) -> Result<()> + Send + 'a> {
        let runtime = runtime()?;
        let (session, statement) = runtime.block_on(async {
            let session = Session::open(&self.url).await?;
            let statement = session.client.prepare(&self.sql()).await?;
            Ok::<_, HarnessError>((session, statement))
        })?;
        let mut rng = Rng::fork(self.seed, connection);
        Ok(move |event| {
            let (id, key, seq) = (rng.uuid(), self.key(event), event as i64);
            let values: [&(dyn ToSql + Sync); 5] = [&id, &self.aggregatetype, &key, &seq, &pad];
            runtime.block_on(session.client.execute(&statement, &values))?;
            Ok(())
        })
    }

    fn sql(&self) -> String {
        format!(
            "insert into {} (id, aggregatetype, aggregateid, type, payload)
             values ($1::text::uuid, $2, $3, 'created', jsonb_build_object(
                     't', (extract(epoch from clock_timestamp()) * 1000000)::bigint,
                     'seq', $4::bigint, 'pad', $5::text))",
            self.table
        )
    }

    /// A connection's keys are congruent to its number, so that no key has two writers.
    fn key(&self, event: u64) -> String {
        let connections = self.connections.max(1);
        let per_connection = (self.keys / connections).max(1);
        let turn = (event / connections) % per_connection;
        format!("key-{}", turn * connections + event % connections)
    }

    fn pad(&self) -> String {
        const FRAME_BYTES: usize = 49;
        let mut rng = Rng::new(self.seed);
        let bytes = self.payload_bytes.saturating_sub(FRAME_BYTES);
        (0..bytes).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    }
}

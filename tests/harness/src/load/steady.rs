//! A steady rate of single-row transactions, for latency: an even load (see [`walrelay_measure::load`]) of the
//! outbox.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use walrelay_measure::load::{Pace, steady};

use super::{FRAME_BYTES, KEYS, PAYLOAD_BYTES};
use crate::kit::{Rng, Session, runtime};
use crate::{HarnessError, Result};

const SQL: &str = "insert into public.outbox (id, aggregatetype, aggregateid, type, payload)
    values ($1::text::uuid, 'order', $2, 'created', jsonb_build_object(
            't', (extract(epoch from clock_timestamp()) * 1000000)::bigint,
            'seq', $3::bigint, 'pad', $4::text))";

/// `rate_per_second` events for `duration`, over several connections.
///
/// The payload's `t` is the server's `clock_timestamp()` inside the INSERT. Keys are split between connections, so
/// `seq` (the event's number) rises per key.
#[derive(Clone, Debug)]
pub struct SteadyLoad {
    pub url: String,
    pub rate_per_second: f64,
    pub duration: Duration,
    /// Makes ids repeatable, and two loads of one table distinct.
    pub seed: u64,
}

impl SteadyLoad {
    /// The shape that the peers were measured with, at a rate.
    pub fn new(url: impl Into<String>, rate_per_second: f64, duration: Duration) -> SteadyLoad {
        SteadyLoad { url: url.into(), rate_per_second, duration, seed: 1 }
    }

    /// Runs to its end. Any failed INSERT fails the load: it is for measuring, not for chaos.
    pub fn run(&self) -> Result<Pace> {
        if !(self.rate_per_second.is_finite() && self.rate_per_second > 0.0) {
            return Err(HarnessError::Other("a steady load needs a rate above 0".into()));
        }
        // All connect before the first event is due, or the start would be a burst.
        let pad = self.pad();
        // They divide the keys, so that no key has two writers.
        let connections = if self.rate_per_second > 2_000.0 { 8 } else { 4 };
        let writers = (0..connections).map(|connection| self.writer(connection, &pad));
        let writers = writers.collect::<Result<Vec<_>>>()?;
        let events = (self.rate_per_second * self.duration.as_secs_f64()).round() as u64;
        steady(writers, 0..events, self.rate_per_second, &AtomicBool::new(false))
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
            let statement = session.client.prepare(SQL).await?;
            Ok::<_, HarnessError>((session, statement))
        })?;
        let mut rng = Rng::fork(self.seed, connection);
        Ok(move |event| {
            let (id, key, seq) = (rng.uuid(), format!("key-{}", event % KEYS), event as i64);
            let values: [&(dyn ToSql + Sync); 4] = [&id, &key, &seq, &pad];
            runtime.block_on(session.client.execute(&statement, &values))?;
            Ok(())
        })
    }

    fn pad(&self) -> String {
        let mut rng = Rng::new(self.seed);
        (FRAME_BYTES..PAYLOAD_BYTES).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    }
}

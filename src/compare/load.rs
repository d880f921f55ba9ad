//! The load: events written one by one at an even pace, whether or not anybody keeps up.
//!
//! An event is one INSERT that commits by itself. Its time begins just before it is sent, on the
//! clock by which the consumer stamps it. What was due is not skipped when a connection is late: the
//! lateness is reported, because then the machine is too small for the rate.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::failed;
use super::plan::{KEYS, PAYLOAD_BYTES};
use super::tally::{Tally, quantile_ms};
use crate::base::error::Fault;
use crate::source::quote::quote_ident;
use crate::source::settings::ConnInfo;

/// Rows of one transaction of a backlog.
const BACKLOG_BATCH: u64 = 100;

/// Connections that write.
pub(super) struct Load {
    writers: Vec<Arc<Writer>>,
}

struct Writer {
    client: Client,
    insert: Statement,
}

/// How the load itself did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    pub(super) per_second: f64,
    pub(super) late_p99_ms: f64,
}

/// How many connections a rate takes; each divides the number of keys.
fn connections(rate: u32) -> u64 {
    match rate {
        0..=1000 => 4,
        1001..=4000 => 8,
        _ => 20,
    }
}

/// The key of an event.
pub(super) fn key(number: u64) -> String {
    format!("key-{:04}", number % KEYS)
}

/// A payload of [`PAYLOAD_BYTES`] bytes.
pub(super) fn payload(run: u32, number: u64) -> String {
    let head = format!(
        "{{\"n\":{number},\"run\":{run},\"customer\":\"{}\",\"total_cents\":{},\"note\":\"",
        key(number),
        100 + number % 9900
    );
    let rest = PAYLOAD_BYTES.saturating_sub(head.len() + 2);
    format!("{head}{}\"}}", "lorem ipsum ".repeat(rest / 12 + 1).get(..rest).unwrap_or_default())
}

impl Load {
    /// Connects; the table is `schema.outbox`.
    pub(super) async fn open(info: &ConnInfo, schema: &str, rate: u32) -> Result<Load, Fault> {
        let sql = format!(
            "INSERT INTO {}.outbox (event_key, payload) VALUES ($1, $2::pg_catalog.text::pg_catalog.jsonb)",
            quote_ident(schema)
        );
        let mut writers = Vec::new();
        for _ in 0..connections(rate) {
            let client = super::connect(info, schema).await?;
            let insert = client.prepare(&sql).await;
            let insert = insert.map_err(|error| failed(&error, "preparing the load"))?;
            writers.push(Arc::new(Writer { client, insert }));
        }
        Ok(Load { writers })
    }

    /// Writes these events at this pace.
    pub(super) async fn write(
        &self,
        tally: &Arc<Tally>,
        run: u32,
        numbers: Range<u64>,
        rate: u32,
    ) -> Result<Pace, Fault> {
        let count = self.writers.len();
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for (at, writer) in self.writers.iter().enumerate() {
            let (writer, tally) = (Arc::clone(writer), Arc::clone(tally));
            let first = numbers.start;
            // Number n is always written by connection n modulo their count, and so is its key.
            let own = numbers.clone().filter(move |number| *number as usize % count == at);
            tasks.spawn(async move {
                let mut late_us: Vec<u32> = Vec::new();
                for number in own {
                    let due =
                        began + Duration::from_secs_f64((number - first) as f64 / f64::from(rate));
                    let (key, payload) = (key(number), payload(run, number));
                    tokio::time::sleep_until(due.into()).await;
                    let now = Instant::now();
                    let late = now.saturating_duration_since(due).as_micros();
                    late_us.push(u32::try_from(late).unwrap_or(u32::MAX));
                    tally.sends(number, now);
                    writer.client.execute(&writer.insert, &[&key, &payload]).await?;
                }
                Ok::<_, tokio_postgres::Error>(late_us)
            });
        }
        let mut late_us = Vec::new();
        while let Some(joined) = tasks.join_next().await {
            let written = joined.map_err(|error| super::broken(&error.to_string()))?;
            late_us.extend(written.map_err(|error| failed(&error, "writing the load"))?);
        }
        late_us.sort_unstable();
        let took = began.elapsed().as_secs_f64();
        // The last event is due one step before the end.
        let planned = (numbers.end - numbers.start) as f64 / f64::from(rate);
        Ok(Pace {
            per_second: (numbers.end - numbers.start) as f64 / took.max(planned),
            late_p99_ms: quantile_ms(&late_us, 0.99),
        })
    }
}

/// Writes a backlog in transactions of [`BACKLOG_BATCH`] rows: the same events, faster.
pub(super) async fn backlog(
    client: &Client,
    schema: &str,
    tally: &Tally,
    run: u32,
    events: u64,
) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO {}.outbox (event_key, payload)
         SELECT key, payload::pg_catalog.jsonb FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) AS event (key, payload)",
        quote_ident(schema)
    );
    let insert = client.prepare(&sql).await.map_err(|error| failed(&error, "the backlog"))?;
    let mut from = 0;
    while from < events {
        let numbers = from..events.min(from + BACKLOG_BATCH);
        from = numbers.end;
        let keys: Vec<String> = numbers.clone().map(key).collect();
        let payloads: Vec<String> = numbers.clone().map(|number| payload(run, number)).collect();
        let now = Instant::now();
        numbers.for_each(|number| tally.sends(number, now));
        let written = client.execute(&insert, &[&keys, &payloads]).await;
        written.map_err(|error| failed(&error, "writing the backlog"))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

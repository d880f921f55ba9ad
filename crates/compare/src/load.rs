//! The load: events written at an even rate, whether or not the relay keeps up, or as a backlog.
//!
//! An event is one INSERT that commits by itself. Its latency begins just before the INSERT is
//! sent, on the same clock as that of the consumer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio_postgres::{Client, Statement};
use walrelay_measure::load::{Pace, steady};

use super::arrivals::Arrivals;
use super::plan::{KEYS, PAYLOAD_BYTES};
use super::scratch_source::connect;
use walrelay_base::error::Fault;
use walrelay_base::runtime;
use walrelay_postgres::faults::query_fault;
use walrelay_postgres::quote::quote_ident;
use walrelay_postgres::settings::ConnInfo;

/// Rows per transaction of a backlog.
const BACKLOG_BATCH: u64 = 100;

/// The connections that write.
pub(super) struct LoadWriters(Vec<(Arc<Client>, Statement)>);

/// How many connections write at this rate. The result divides [`KEYS`].
fn connections(rate: u32) -> u64 {
    match rate {
        0..=1000 => 4,
        1001..=4000 => 8,
        _ => 20,
    }
}

fn key(number: u64) -> String {
    format!("key-{:04}", number % KEYS)
}

/// A JSON object of [`PAYLOAD_BYTES`] bytes.
pub(super) fn payload(run: u32, number: u64) -> String {
    let head = format!(
        "{{\"n\":{number},\"run\":{run},\"customer\":\"{}\",\"total_cents\":{},\"note\":\"",
        key(number),
        100 + number % 9900
    );
    let rest = PAYLOAD_BYTES.saturating_sub(head.len() + 2);
    format!("{head}{}\"}}", "lorem ipsum ".repeat(rest / 12 + 1).get(..rest).unwrap_or_default())
}

impl LoadWriters {
    pub(super) async fn open(
        info: &ConnInfo,
        schema: &str,
        rate: u32,
    ) -> Result<LoadWriters, Fault> {
        let sql = format!(
            "INSERT INTO {}.outbox (event_key, payload) VALUES ($1, $2::pg_catalog.text::pg_catalog.jsonb)",
            quote_ident(schema)
        );
        let mut writers = Vec::new();
        for _ in 0..connections(rate) {
            let client = connect(info, schema).await?;
            let insert = client.prepare(&sql).await;
            let insert = insert.map_err(|error| query_fault(&error, "preparing the load"))?;
            writers.push((Arc::new(client), insert));
        }
        Ok(LoadWriters(writers))
    }

    /// Writes the events of a run at a rate. Dropping the future stops the load.
    pub(super) async fn write(
        &self,
        arrivals: &Arc<Arrivals>,
        run: u32,
        numbers: Range<u64>,
        rate: u32,
    ) -> Result<Pace, Fault> {
        let stop = StopWhenDropped::default();
        let (stopped, runtime) = (Arc::clone(&stop.0), Handle::current());
        // The number of connections divides KEYS, so that a key always has the same writer.
        let writer = |(client, insert): &(Arc<Client>, Statement)| {
            let (client, insert) = (Arc::clone(client), insert.clone());
            let (arrivals, runtime) = (Arc::clone(arrivals), runtime.clone());
            move |number| {
                let (key, payload) = (key(number), payload(run, number));
                arrivals.note_sent(number, Instant::now());
                runtime.block_on(client.execute(&insert, &[&key, &payload])).map(drop)
            }
        };
        let writers: Vec<_> = self.0.iter().map(writer).collect();
        let load = move || steady(writers, numbers, rate.into(), &stopped);
        let written = tokio::task::spawn_blocking(load).await;
        let written = written.map_err(|error| runtime::refused("the load", &error.into()))?;
        written.map_err(|error| query_fault(&error, "writing the load"))
    }
}

/// Ends the threads of a load with the future that awaits them.
#[derive(Default)]
struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Writes the same events as fast as possible, in transactions of [`BACKLOG_BATCH`] rows.
pub(super) async fn backlog(
    info: &ConnInfo,
    schema: &str,
    arrivals: &Arrivals,
    run: u32,
    events: u64,
) -> Result<(), Fault> {
    let failed = |error| query_fault(&error, "writing the backlog");
    let sql = format!(
        "INSERT INTO {}.outbox (event_key, payload)
         SELECT key, payload::pg_catalog.jsonb FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) AS event (key, payload)",
        quote_ident(schema)
    );
    let client = connect(info, schema).await?;
    let insert = client.prepare(&sql).await.map_err(failed)?;
    for from in (0..events).step_by(BACKLOG_BATCH as usize) {
        let numbers = from..events.min(from + BACKLOG_BATCH);
        let keys: Vec<String> = numbers.clone().map(key).collect();
        let payloads: Vec<String> = numbers.clone().map(|number| payload(run, number)).collect();
        let now = Instant::now();
        numbers.for_each(|number| arrivals.note_sent(number, now));
        client.execute(&insert, &[&keys, &payloads]).await.map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

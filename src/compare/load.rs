//! The load: events written at an even rate, whether or not the relay keeps up.
//!
//! An event is one INSERT that commits by itself. Its latency begins just before the INSERT is
//! sent, on the same clock as that of the consumer. A connection that is late writes every event
//! all the same; the delay is reported, because then the machine is too small for the rate.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::arrivals::Arrivals;
use super::plan::{KEYS, PAYLOAD_BYTES};
use super::report::Latencies;
use super::scratch_source::connect;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::source::faults::query_fault;
use crate::source::quote::quote_ident;
use crate::source::settings::ConnInfo;

/// Rows per transaction of a backlog.
const BACKLOG_BATCH: u64 = 100;

/// The connections that write.
pub(super) struct LoadWriters(Vec<(Arc<Client>, Statement)>);

/// How the load was really written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LoadPace {
    pub(super) per_second: f64,
    pub(super) late_p99_ms: f64,
}

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

    pub(super) async fn write(
        &self,
        arrivals: &Arc<Arrivals>,
        run: u32,
        numbers: Range<u64>,
        rate: u32,
    ) -> Result<LoadPace, Fault> {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for (at, (client, insert)) in self.0.iter().enumerate() {
            let (client, insert) = (Arc::clone(client), insert.clone());
            let arrivals = Arc::clone(arrivals);
            let (first, count) = (numbers.start, self.0.len());
            // The number of connections divides KEYS, so that a key always has the same writer.
            let own = numbers.clone().filter(move |number| *number as usize % count == at);
            tasks.spawn(async move {
                let mut late_us: Vec<u32> = Vec::new();
                for number in own {
                    let after = (number - first) as f64 / f64::from(rate);
                    let due = began + Duration::from_secs_f64(after);
                    let (key, payload) = (key(number), payload(run, number));
                    tokio::time::sleep_until(due.into()).await;
                    let now = Instant::now();
                    let late = now.saturating_duration_since(due).as_micros();
                    late_us.push(u32::try_from(late).unwrap_or(u32::MAX));
                    arrivals.sends(number, now);
                    client.execute(&insert, &[&key, &payload]).await?;
                }
                Ok::<_, tokio_postgres::Error>(late_us)
            });
        }
        let mut late_us = Vec::new();
        while let Some(joined) = tasks.join_next().await {
            let written = joined.map_err(|error| runtime::refused("the load", &error.into()))?;
            late_us.extend(written.map_err(|error| query_fault(&error, "writing the load"))?);
        }
        let took = began.elapsed().as_secs_f64();
        // The last event is due 1/rate before the end, so `took` may be too short.
        let events = (numbers.end - numbers.start) as f64;
        Ok(LoadPace {
            per_second: events / took.max(events / f64::from(rate)),
            late_p99_ms: Latencies::of(late_us).p99_ms().unwrap_or_default(),
        })
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
        numbers.for_each(|number| arrivals.sends(number, now));
        client.execute(&insert, &[&keys, &payloads]).await.map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

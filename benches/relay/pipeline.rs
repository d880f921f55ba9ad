//! The bare pipeline: the relay's reader and librdkafka, and nothing between them.
//!
//! One process, as the relay is: it passes key and payload through, with headers or without, and
//! promises nothing: no window, no order after a failure, no position. It is this program, started a second time, so that its CPU
//! and its memory are its own.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use walrelay::pgoutput::message::{Message, Value};
use walrelay_harness::proc::{self, spawn_tied, tied_command};
use walrelay_harness::{HarnessError, Result, other};

use crate::bed::Bed;
use crate::broker::Target;
use crate::drain::{LIMIT, Times};
use crate::kafka_ffi::Producer;
use crate::reader::{self, insert};
use walrelay_measure::process::Watch;

/// As many headers as the relay's default preset has, of the same lengths.
const HEADERS: [(&str, &str); 4] = [
    ("id", "00000000-0000-0000-0000-000000000000"),
    ("event_type", "created"),
    ("commit_ts", "2026-01-01T00:00:00.000000Z"),
    ("lsn", "0/10000000"),
];
/// The column of the outbox table that has the key.
const KEY_COLUMN: usize = 2;
const PAYLOAD_COLUMN: usize = 4;

/// Starts it, and takes its times from what it says.
pub(crate) fn drain(
    bed: &Bed,
    slot: &str,
    target: &Target,
    rows: u64,
    headers: bool,
) -> Result<Times> {
    let (brokers, topic) = target.topic()?;
    let mut command = tied_command(&std::env::current_exe().map_err(other)?);
    command.args(["--bare-pipeline", &bed.url(), slot, brokers, topic, &rows.to_string()]);
    command.arg(headers.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started_at = Instant::now();
    let mut child = spawn_tied(command).map_err(other)?;
    let said = child.stdout.take().ok_or_else(|| other("no pipe"))?;
    let mut said = BufReader::new(said).lines();
    let (first_events, first_at) = next(&mut said)?;
    let walsender = Watch::start(bed.walsender("walrelay")?);
    let (_, done_at) = next(&mut said)?;
    let cpu_s = proc::cpu_seconds(child.id())?;
    let memory = proc::memory(child.id())?;
    let walsender_cpu_s = walsender.cpu_seconds();
    child.kill().and_then(|()| child.wait()).map_err(other)?;
    target.expect(rows)?;
    Ok(Times {
        started_at,
        first_at,
        first_events,
        done_at,
        cpu_s,
        walsender_cpu_s,
        peak_rss_bytes: Some(memory.peak_rss_bytes),
    })
}

/// How many it says are confirmed, and when it says so.
fn next(said: &mut Lines<BufReader<ChildStdout>>) -> Result<(u64, Instant)> {
    let line = said.next().ok_or_else(|| other("the bare pipeline has ended"))?;
    Ok((line.map_err(other)?.parse().map_err(other)?, Instant::now()))
}

/// The process itself: says how many are confirmed at the first confirm and at the end, and waits
/// to be killed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [url, slot, brokers, topic, rows, headers] = arguments else {
        return Err(other("six arguments"));
    };
    let rows: u64 = rows.parse().map_err(other)?;
    let headers: &[(&str, &str)] = if headers == "true" { &HEADERS } else { &[] };
    let mut producer = Producer::new(brokers, topic)?;
    let (mut stream, _) = reader::open(url, slot)?;
    let began = Instant::now();
    let (mut seen, mut told) = (0, false);
    while producer.confirmed() < rows {
        let more = stream.fill(Instant::now()).map_err(other)?;
        while let Some((packet, length)) = stream.peek().map_err(other)? {
            if let Some(body) = insert(&packet) {
                let (key, payload) = key_and_payload(body)?;
                while !producer.enqueue(key, payload, headers)? {
                    producer.poll(1)?;
                }
                seen += 1;
            }
            stream.consume(length);
        }
        if seen == rows {
            producer.settle()?;
        } else if !more {
            stream.wait(Duration::from_millis(10), None, Instant::now()).map_err(other)?;
        }
        producer.poll(0)?;
        if producer.confirmed() > 0 && !told {
            println!("{}", producer.confirmed());
            told = true;
        }
        if began.elapsed() > LIMIT {
            return Err(HarnessError::Late { what: format!("{rows} rows"), limit: LIMIT });
        }
    }
    println!("{}", producer.confirmed());
    loop {
        std::thread::park();
    }
}

fn key_and_payload(body: &[u8]) -> Result<(&[u8], &[u8])> {
    let Ok(Message::Insert { tuple, .. }) = Message::parse(body) else {
        return Err(other("not an insert"));
    };
    let mut values = tuple.values().map_err(other)?;
    let mut column = |skip| match values.nth(skip) {
        Some(Ok(Value::Text(bytes) | Value::Binary(bytes))) => Ok(bytes),
        _ => Err(other("not an outbox")),
    };
    let key = column(KEY_COLUMN)?;
    // A version before the text.
    let payload = column(PAYLOAD_COLUMN - KEY_COLUMN - 1)?;
    Ok((key, payload.get(1..).unwrap_or_default()))
}

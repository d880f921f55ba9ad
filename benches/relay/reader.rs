//! The relay's own reader with nothing behind it: what the walsender can give.
//!
//! It reads lazily and binary columns; rows are counted and not decoded.

use std::time::{Duration, Instant};

use walrelay::pgoutput::frame::Frame;
use walrelay::source::connect::{self, StartReplication};
use walrelay::source::conninfo;
use walrelay::source::stream::{Packet, Stream};
use walrelay::source::wire;
use walrelay_harness::bench::PUBLICATION;
use walrelay_harness::kit::run_on_thread;
use walrelay_harness::{HarnessError, Result, other};

use crate::bed::Bed;
use crate::drain::{LIMIT, Times};
use walrelay_measure::process::{Watch, thread_cpu_seconds};

/// A stream from `slot`, and the process id of its walsender.
pub(crate) fn open(url: &str, slot: &str) -> Result<(Stream, u32)> {
    let info = conninfo::parse(url, &|_| None).map_err(other)?;
    let start = StartReplication {
        slot: slot.to_owned(),
        publication: PUBLICATION.to_owned(),
        messages: false,
        binary: true,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let session = runtime.map_err(other)?.block_on(connect::open_stream(&info, &start));
    let session = session.map_err(other)?;
    let stream = Stream::new(wire::of(session.transport).map_err(other)?, Instant::now());
    Ok((stream, u32::try_from(session.backend_pid).map_err(other)?))
}

/// The body of an insert.
pub(crate) fn insert<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    match packet {
        Packet::Frame(Frame::XLogData { body: body @ [b'I', ..], .. }) => Some(body),
        _ => None,
    }
}

pub(crate) fn drain(bed: &Bed, slot: &str, rows: u64) -> Result<Times> {
    let url = bed.url();
    run_on_thread(|| {
        let started_at = Instant::now();
        let (mut stream, walsender) = open(&url, slot)?;
        let walsender = Watch::start(walsender);
        let (first_at, first_events) = discard(&mut stream, rows)?;
        Ok(Times {
            started_at,
            first_at,
            first_events,
            done_at: Instant::now(),
            cpu_s: thread_cpu_seconds(),
            walsender_cpu_s: walsender.cpu_seconds(),
            peak_rss_bytes: None,
        })
    })
}

/// Reads and forgets until `rows` inserts were seen; says when the first came, and with how many.
fn discard(stream: &mut Stream, rows: u64) -> Result<(Instant, u64)> {
    let mut seen = 0;
    let mut first = None;
    let began = Instant::now();
    while seen < rows {
        let now = Instant::now();
        let more = stream.fill(now).map_err(other)?;
        while let Some((packet, length)) = stream.peek().map_err(other)? {
            seen += u64::from(insert(&packet).is_some());
            stream.consume(length);
        }
        if seen > 0 {
            first.get_or_insert((now, seen));
        }
        if !more && seen < rows {
            stream.wait(Duration::from_millis(100), None, Instant::now()).map_err(other)?;
        }
        if began.elapsed() > LIMIT {
            return Err(HarnessError::Late { what: format!("{rows} rows"), limit: LIMIT });
        }
    }
    first.ok_or_else(|| other("a backlog without rows"))
}

//! `pg_recvlogical`, the reader that everybody has: to /dev/null for speed, into a pipe for latency.
//!
//! It reads eagerly and in text form with protocol version 1, and writes each message at once.

use std::io::Read as _;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use walrelay_harness::bench::PUBLICATION;
use walrelay_harness::kit::{now_us, wait_for};
use walrelay_harness::proc::{spawn_tied, tied_command};
use walrelay_harness::{HarnessError, Result};
use walrelay_measure::latency::Latencies;

use crate::bed::Bed;

/// A running `pg_recvlogical`, killed when dropped.
pub(crate) struct Recvlogical {
    child: Child,
    spawned_at: Instant,
}

impl Recvlogical {
    /// Reads `slot` into `file`, to `endpos` if there is one.
    pub(crate) fn start(
        bed: &Bed,
        slot: &str,
        file: &str,
        endpos: Option<&str>,
    ) -> Result<Recvlogical> {
        let mut command = tied_command(&bed.pg_recvlogical());
        command.args(["--dbname", &bed.url(), "--slot", slot, "--start", "--no-loop"]);
        command.args(["--file", file, "--fsync-interval", "0", "--option", "proto_version=1"]);
        command.args(["--option", &format!("publication_names={PUBLICATION}")]);
        if let Some(endpos) = endpos {
            command.args(["--endpos", endpos]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let spawned_at = Instant::now();
        let child = spawn_tied(command).map_err(HarnessError::io("start pg_recvlogical"))?;
        Ok(Recvlogical { child, spawned_at })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn spawned_at(&self) -> Instant {
        self.spawned_at
    }

    /// Waits until it has written something: its sockets do not count, so that is the first event.
    pub(crate) fn wait_first(&mut self, timeout: Duration) -> Result<Instant> {
        const SOMETHING_BYTES: u64 = 100;
        wait_for("pg_recvlogical's first message", timeout, Duration::from_millis(1), || {
            let has_begun = written_bytes(self.pid()) >= SOMETHING_BYTES || self.ended()?;
            Ok(has_begun.then(Instant::now))
        })
    }

    /// Waits for its end.
    pub(crate) fn wait_end(&mut self, timeout: Duration) -> Result<Instant> {
        wait_for("the end of pg_recvlogical", timeout, Duration::from_millis(2), || {
            Ok(self.ended()?.then(Instant::now))
        })
    }

    fn ended(&mut self) -> Result<bool> {
        match self.child.try_wait().map_err(HarnessError::io("wait for pg_recvlogical"))? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(HarnessError::Other(format!("pg_recvlogical ended with {status}"))),
        }
    }
}

impl Drop for Recvlogical {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn written_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Times the stamps that come out of a pipe.
pub(crate) struct Stopwatch {
    // Dropped first: its end is what ends the thread.
    reader: Option<Recvlogical>,
    count: Arc<AtomicU64>,
    latencies: Arc<Mutex<Latencies>>,
    thread: Option<JoinHandle<()>>,
}

impl Stopwatch {
    /// Starts `pg_recvlogical` on `slot`.
    pub(crate) fn start(bed: &Bed, slot: &str) -> Result<Stopwatch> {
        let mut reader = Recvlogical::start(bed, slot, "-", None)?;
        let count = Arc::new(AtomicU64::new(0));
        let latencies = Arc::new(Mutex::new(Latencies::default()));
        let pipe = reader.child.stdout.take();
        let (counted, recorded) = (count.clone(), latencies.clone());
        let thread = pipe.map(|pipe| std::thread::spawn(move || time(pipe, &counted, &recorded)));
        Ok(Stopwatch { reader: Some(reader), count, latencies, thread })
    }

    /// Waits until `n` stamps have come since the start.
    pub(crate) fn wait_until(&self, n: u64, timeout: Duration) -> Result<()> {
        let what = format!("{n} stamps out of pg_recvlogical");
        wait_for(what, timeout, Duration::from_millis(2), || {
            Ok((self.count.load(Ordering::Acquire) >= n).then_some(()))
        })
    }

    /// Takes the latencies since the start or the last call.
    pub(crate) fn take(&self) -> Latencies {
        std::mem::take(&mut *self.latencies.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        drop(self.reader.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn time(mut pipe: ChildStdout, count: &AtomicU64, latencies: &Mutex<Latencies>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut kept = 0;
    while let Ok(read) = pipe.read(&mut buffer[kept..]) {
        if read == 0 {
            return;
        }
        let arrived_us = now_us();
        let end = kept + read;
        let (stamps, done) = stamps_us(&buffer[..end]);
        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.iter().for_each(|stamp_us| latencies.record_us(arrived_us - stamp_us));
        count.fetch_add(stamps.len() as u64, Ordering::Release);
        // A stamp may be cut by the end of the pipe's buffer, never by more than this.
        const STAMP_BYTES_MAX: usize = 32;
        let keep_from = done.max(end.saturating_sub(STAMP_BYTES_MAX));
        buffer.copy_within(keep_from..end, 0);
        kept = end - keep_from;
    }
}

/// The numbers after `"t": ` that are followed by a comma, and where the last one ends.
fn stamps_us(bytes: &[u8]) -> (Vec<i64>, usize) {
    const NAME: &[u8] = b"\"t\": ";
    let mut stamps = Vec::new();
    let mut done = 0;
    while let Some(at) = bytes[done..].windows(NAME.len()).position(|window| window == NAME) {
        let from = done + at + NAME.len();
        let Some(digits) = bytes[from..].iter().position(|byte| !byte.is_ascii_digit()) else {
            return (stamps, done);
        };
        let text = std::str::from_utf8(&bytes[from..from + digits]).unwrap_or_default();
        stamps.extend(text.parse::<i64>());
        done = from + digits;
    }
    (stamps, done)
}

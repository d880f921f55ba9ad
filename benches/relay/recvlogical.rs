//! `pg_recvlogical`, the reader that everybody has: to /dev/null for speed, into a pipe for latency.
//!
//! It reads eagerly and in text form with protocol version 1, and writes each message at once.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use walrelay_harness::bench::PUBLICATION;
use walrelay_harness::consumer::Consumer;
use walrelay_harness::kit::wait_for;
use walrelay_harness::proc::{spawn_tied, tied_command};
use walrelay_harness::{HarnessError, Result, other};

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
    // Dropped first: its end is what ends the consumer.
    _reader: Recvlogical,
    pub(crate) consumer: Consumer,
}

impl Stopwatch {
    /// Starts `pg_recvlogical` on `slot`.
    pub(crate) fn start(bed: &Bed, slot: &str) -> Result<Stopwatch> {
        let mut reader = Recvlogical::start(bed, slot, "-", None)?;
        let pipe = reader.child.stdout.take().ok_or_else(|| other("pg_recvlogical has no pipe"))?;
        Ok(Stopwatch { _reader: reader, consumer: Consumer::of_stream(pipe) })
    }
}

//! The relay that is measured: it runs with the user's configuration, but on the scratch source and
//! target, in a process of its own, so that CPU time and memory are those of the relay alone.
//!
//! Its order comes over standard input, because `--set` may hold
//! secrets and every user of the machine can read a command line. When
//! that input ends, the comparison has died, and the relay stops.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use walrelay_base::lock::locked;
use walrelay_measure::process;

use super::report::RelayCost;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::runtime;

pub const COMMAND: &str = "compare-relay";
/// A relay whose parent has died and that does not stop by itself is ended after this time.
const ORPHAN_STOPS_WITHIN: Duration = Duration::from_secs(30);
/// How long the relay may take to settle what is in flight.
const STOPS_WITHIN: Duration = Duration::from_secs(25);
/// So many of the last log lines are shown when the relay fails.
const LOG_LINES_MAX: usize = 30;

/// The order for the measured relay. No `Debug`: `--set` may hold secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct RelayOrder {
    /// Where the user's configuration is, in the words of the program.
    pub config: Value,
    /// The name of schema, slot, publication and topic.
    pub name: String,
    /// The interval of polling; none for the slot.
    pub interval_ms: Option<u64>,
    /// Removed by the comparison.
    pub state_file: Option<PathBuf>,
}

impl RelayOrder {
    /// Reads it from standard input, and stops the process when that input ends.
    pub fn receive() -> Result<RelayOrder, Fault> {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string());
        let order = read.and_then(|_| {
            serde_json::from_str(&line).map_err(|_| "standard input holds no order".to_owned())
        });
        let order = order.map_err(|reason| no_order(&reason))?;
        runtime::spawn("parent", || {
            let mut rest = [0; 1];
            // The input ends or fails when the parent has died.
            while io::stdin().lock().read(&mut rest).is_ok_and(|count| count > 0) {}
            kill_process(rustix::process::getpid(), Signal::TERM).ok();
            std::thread::sleep(ORPHAN_STOPS_WITHIN);
            std::process::exit(Exit::Failed as i32);
        })?;
        Ok(order)
    }
}

/// The fault of a measured relay without a usable order.
#[must_use]
pub fn no_order(reason: &str) -> Fault {
    let what = format!("this command is only for `walrelay compare`: {reason}");
    Fault::new(Exit::Usage, "compare.no-order", what, "", "walrelay compare --help")
}

/// The `application_name` of the relay's sessions.
#[must_use]
pub fn application_name(name: &str) -> String {
    format!("{name}_relay")
}

/// A running relay; dropping it kills it.
pub(super) struct RelayProcess {
    process: std::process::Child,
    log: Arc<Mutex<VecDeque<String>>>,
    state_file: Option<PathBuf>,
}

impl RelayProcess {
    pub(super) fn start(order: &RelayOrder) -> Result<RelayProcess, Fault> {
        let mut command = Command::new(std::env::current_exe().map_err(broken)?);
        command.args(["--log", "warn", COMMAND]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A process group of its own: Ctrl-C shall reach
        // only the comparison, which stops the relay.
        command.process_group(0);
        let mut process = command.spawn().map_err(broken)?;
        let errors = process.stderr.take();
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let state_file = order.state_file.clone();
        let mut relay = RelayProcess { process, log: Arc::clone(&log), state_file };
        if let Some(errors) = errors {
            runtime::spawn("relay-log", move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    let mut log = locked(&log);
                    log.truncate(LOG_LINES_MAX - 1);
                    log.push_front(line);
                }
            })?;
        }
        let line = serde_json::to_string(order).map_err(|error| broken(error.into()))?;
        // The input stays open, because the relay stops at its end.
        match relay.process.stdin.as_mut().map(|input| writeln!(input, "{line}")) {
            Some(Ok(())) => Ok(relay),
            Some(Err(_)) | None => Err(relay.failed("it did not read its order")),
        }
    }

    /// Fails when the relay has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Fault> {
        self.ended()?.map_or(Ok(()), |status| Err(self.failed(&format!("it ended: {status}"))))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Fault> {
        self.process.try_wait().map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, why: &str) -> Fault {
        // The last lines of the log may still be in the pipe.
        std::thread::sleep(Duration::from_millis(100));
        let log = locked(&self.log);
        let lines: Vec<&str> = log.iter().rev().map(String::as_str).collect();
        let what = format!("the relay under test failed: {why}");
        let mend = if lines.is_empty() { "walrelay check".to_owned() } else { lines.join("\n") };
        Fault::new(Exit::Failed, "compare.relay-failed", what, "", mend)
    }

    pub(super) fn cost(&self) -> RelayCost {
        let pid = self.process.id();
        RelayCost {
            cpu_s: process::cpu_seconds(pid).unwrap_or(0.0),
            rss_peak_bytes: process::memory(pid).map_or(0, |memory| memory.peak_rss_bytes),
        }
    }

    /// Stops the relay with SIGTERM.
    pub(super) async fn stop(mut self) -> Result<(), Fault> {
        self.check()?;
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).map_err(|error| broken(error.into()))?;
        }
        let deadline = Instant::now() + STOPS_WITHIN;
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failed(&format!("it ended: {status}"))),
                None if Instant::now() > deadline => return Err(self.failed("it does not stop")),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        if let Some(path) = &self.state_file {
            std::fs::remove_file(path).ok();
        }
    }
}

fn broken(error: io::Error) -> Fault {
    runtime::refused("the relay under test", &error)
}

//! The measured relay, seen from whoever started it.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::relay::{COMMAND, Order};
use super::report::RelayCost;
use super::{broken, proc};
use crate::base::error::{Exit, Fault};

/// What it says is kept to this many lines, for when it fails.
const SAID_MAX: usize = 30;
/// How long it may take to settle what is in flight.
const STOPS_WITHIN: Duration = Duration::from_secs(25);

/// A relay that runs; killed when dropped.
pub(super) struct Child {
    process: std::process::Child,
    said: Arc<Mutex<VecDeque<String>>>,
    crash_file: std::path::PathBuf,
}

impl Child {
    pub(super) fn start(order: &Order) -> Result<Child, Fault> {
        let program = std::env::current_exe().map_err(|error| broken(&error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["--log", "warn", COMMAND]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C is for us; it is then stopped in good order.
        command.process_group(0);
        let mut process = command.spawn().map_err(|error| broken(&error.to_string()))?;
        let said = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(errors) = process.stderr.take() {
            let said = Arc::clone(&said);
            let listen = move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.push_back(line);
                    if said.len() > SAID_MAX {
                        said.pop_front();
                    }
                }
            };
            let listener = std::thread::Builder::new().name("relay-said".to_owned());
            listener.spawn(listen).map_err(|error| broken(&error.to_string()))?;
        }
        let mut child = Child { process, said, crash_file: order.crash_file.clone() };
        let line = serde_json::to_string(order).map_err(|error| broken(&error.to_string()))?;
        // Kept open: it stops when this ends.
        let told = child.process.stdin.as_mut().map(|input| writeln!(input, "{line}"));
        match told {
            Some(Ok(())) => Ok(child),
            Some(Err(_)) | None => Err(child.failed("it did not take its order")),
        }
    }

    /// Fails when it has ended by itself.
    pub(super) fn alive(&mut self) -> Result<(), Fault> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(&format!("it ended: {status}"))),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    fn failed(&self, why: &str) -> Fault {
        // What it said last may still be on its way through the pipe.
        std::thread::sleep(Duration::from_millis(100));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let what = format!("the relay under test failed: {why}");
        let mend = if said.is_empty() { "walrelay check".to_owned() } else { said.join("\n") };
        Fault::new(Exit::Failed, "compare.relay-failed", what, "", mend)
    }

    /// What it has used so far.
    pub(super) fn cost(&self) -> RelayCost {
        RelayCost {
            cpu_s: proc::cpu_s(self.process.id()).unwrap_or_default(),
            rss_peak_bytes: proc::rss_peak_bytes(self.process.id()).unwrap_or_default(),
        }
    }

    /// Stops it as an operator would.
    pub(super) async fn stop(mut self) -> Result<(), Fault> {
        self.alive()?;
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).map_err(|error| broken(&error.to_string()))?;
        }
        let deadline = Instant::now() + STOPS_WITHIN;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failed(&format!("it ended: {status}"))),
                Ok(None) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok(None) => return Err(self.failed("it does not stop")),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has ended already, or the comparison has failed.
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_file(&self.crash_file).ok();
    }
}

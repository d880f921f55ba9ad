//! The relay that is measured: the user's configuration with the scratch source and target in the
//! place of theirs, run in a process of its own, so that its CPU time and memory are the relay's alone.
//!
//! What it is to do comes over its standard input, because `--set` may hold secrets and a command
//! line can be read by everybody. When that input ends, whoever started it is gone, and it stops.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::process_stats;
use super::report::RelayCost;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::template::Template;
use crate::config::{Config, Request};
use crate::delivery::settings::OnDeadLetter;
use crate::outbox::settings::{Columns, OutboxTable, Preset, Route};
use crate::polling::settings::{PollingSettings, StatusValues, WorkColumns};
use crate::sink::SinkKind;

/// The hidden command.
pub(crate) const COMMAND: &str = "compare-relay";
/// After this a relay whose parent has gone is ended.
const ORPHAN_STOPS_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to settle what is in flight.
const STOPS_WITHIN: Duration = Duration::from_secs(25);
/// Its last lines are kept, for when it fails.
const LOG_LINES_MAX: usize = 30;

/// What a measured relay is to do. No `Debug`: settings may hold secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct RelayOrder {
    /// This and the next two as in [`Request`].
    pub(super) file: Option<PathBuf>,
    pub(super) settings: Vec<String>,
    pub(super) slot: Option<String>,
    /// Schema, slot, publication, topic.
    pub(super) name: String,
    /// Of polling; none for the slot.
    pub(super) interval_ms: Option<u64>,
    /// Removed by whoever gave the order.
    pub(super) crash_file: PathBuf,
}

impl RelayOrder {
    /// Reads it from standard input, and from then on ends the process with that input.
    pub(crate) fn receive() -> Result<RelayOrder, Fault> {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string());
        let order =
            read.and_then(|_| serde_json::from_str(&line).map_err(|_| "no order came".to_owned()));
        let order = order.map_err(|reason| {
            let what = format!("this command is for `walrelay compare` alone: {reason}");
            Fault::new(Exit::Usage, "compare.no-order", what, "", "walrelay compare --help")
        })?;
        runtime::spawn("parent", || {
            let mut rest = [0; 1];
            // Whether it ends or fails, the parent has gone.
            while io::stdin().lock().read(&mut rest).is_ok_and(|count| count > 0) {}
            kill_process(rustix::process::getpid(), Signal::TERM).ok();
            std::thread::sleep(ORPHAN_STOPS_WITHIN);
            std::process::exit(Exit::Failed as i32);
        })?;
        Ok(order)
    }

    /// Where its configuration is.
    pub(crate) fn request(&self, variables: BTreeMap<String, String>) -> Request {
        Request {
            file: self.file.clone(),
            settings: self.settings.clone(),
            slot: self.slot.clone(),
            listen: None,
            variables,
        }
    }

    /// The configuration with the scratch source and target in it. Window, retries, `source.binary`,
    /// broker, logins and properties stay what they are.
    pub(crate) fn adapt(&self, config: &Config) -> Result<Config, Fault> {
        let mut adapted = config.clone();
        adapted.sink = config.sink.for_bench_target(&self.name)?;
        adapted.source.connection.application_name = application_name(&self.name);
        adapted.source.slot.clone_from(&self.name);
        adapted.source.publication.clone_from(&self.name);
        adapted.source.messages = None;
        adapted.source.outboxes = vec![outbox(&self.name, config.sink.kind())?];
        let interval = self.interval_ms.map(Duration::from_millis);
        adapted.polling = interval.map(|interval| polling(config.polling.as_ref(), interval));
        // Nothing here can become a dead letter but by a fault, which is to be seen.
        adapted.delivery.on_dead_letter = OnDeadLetter::Halt;
        adapted.delivery.crash_file = Some(self.crash_file.clone());
        adapted.admin.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        adapted.admin.token = None;
        Ok(adapted)
    }
}

/// By which the relay's sessions are known.
pub(super) fn application_name(name: &str) -> String {
    format!("{name}_relay")
}

fn outbox(name: &str, sink: &SinkKind) -> Result<OutboxTable, Fault> {
    let constant = Template::parse(name).map_err(|error| broken(io::Error::other(error)))?;
    Ok(OutboxTable {
        schema: name.to_owned(),
        columns: Columns { key: "event_key".to_owned(), ..Columns::default() },
        route: Route {
            topic: constant.clone(),
            exchange: sink.routes.exchange_key.is_some().then_some(constant),
            binding: sink.binding,
            // The scratch table has no column for a type.
            preset: Preset::Debezium,
            ..Route::default()
        },
        ..OutboxTable::default()
    })
}

/// The user's own pace of polling, where there is one, on the shipped table.
fn polling(own: Option<&PollingSettings>, interval: Duration) -> PollingSettings {
    PollingSettings {
        interval,
        columns: WorkColumns::default(),
        words: StatusValues::default(),
        ..own.cloned().unwrap_or_default()
    }
}

/// A relay that runs; killed when dropped.
pub(super) struct RelayProcess {
    process: std::process::Child,
    log: Arc<Mutex<VecDeque<String>>>,
    crash_file: PathBuf,
}

impl RelayProcess {
    pub(super) fn start(order: &RelayOrder) -> Result<RelayProcess, Fault> {
        let mut command = Command::new(std::env::current_exe().map_err(broken)?);
        command.args(["--log", "warn", COMMAND]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C must reach only the comparison, which then stops the relay in good order.
        command.process_group(0);
        let mut process = command.spawn().map_err(broken)?;
        let errors = process.stderr.take();
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let crash_file = order.crash_file.clone();
        let mut relay = RelayProcess { process, log: Arc::clone(&log), crash_file };
        if let Some(errors) = errors {
            runtime::spawn("relay-log", move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.truncate(LOG_LINES_MAX - 1);
                    log.push_front(line);
                }
            })?;
        }
        let line = serde_json::to_string(order).map_err(|error| broken(error.into()))?;
        // Kept open: it stops when this ends.
        match relay.process.stdin.as_mut().map(|input| writeln!(input, "{line}")) {
            Some(Ok(())) => Ok(relay),
            Some(Err(_)) | None => Err(relay.failed("it did not take its order")),
        }
    }

    /// Fails when it has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Fault> {
        self.ended()?.map_or(Ok(()), |status| Err(self.failed(&format!("it ended: {status}"))))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Fault> {
        self.process.try_wait().map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, why: &str) -> Fault {
        // Its last lines may still be on their way through the pipe.
        std::thread::sleep(Duration::from_millis(100));
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = log.iter().rev().map(String::as_str).collect();
        let what = format!("the relay under test failed: {why}");
        let mend = if lines.is_empty() { "walrelay check".to_owned() } else { lines.join("\n") };
        Fault::new(Exit::Failed, "compare.relay-failed", what, "", mend)
    }

    /// What it has used so far.
    pub(super) fn cost(&self) -> RelayCost {
        RelayCost {
            cpu_s: process_stats::cpu_s(self.process.id()).unwrap_or_default(),
            rss_peak_bytes: process_stats::rss_peak_bytes(self.process.id()).unwrap_or_default(),
        }
    }

    /// Stops it as an operator would.
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
        // It has ended already, or the comparison has failed.
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_file(&self.crash_file).ok();
    }
}

fn broken(error: io::Error) -> Fault {
    runtime::refused("the relay under test", &error)
}

#[cfg(test)]
#[path = "relay_process_tests.rs"]
mod tests;

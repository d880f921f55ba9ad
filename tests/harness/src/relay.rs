//! The relay under test as a process: configured, started, killed, frozen, asked.
//!
//! Everything it says goes to a file in its folder and, bounded, into memory, across restarts, so
//! that a failing test can show it. The process ends with its owner: on drop by its pid, and by
//! the kernel when the test itself is killed.

mod config;
mod http;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub use config::{RabbitTarget, RelayConfig};
pub use http::{Response, get};

use crate::kit::{KitError, KitResult};
use crate::proc;

/// Lines of output kept in memory; the file has all of them.
const LINES_MAX: usize = 20_000;

/// The relay binary: `WALRELAY_BIN`, or `walrelay` near this executable (`target/release`).
pub fn default_binary() -> KitResult<PathBuf> {
    if let Some(path) = std::env::var_os("WALRELAY_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().map_err(KitError::io("find this executable"))?;
    let near = own.ancestors().skip(1).take(3).map(|folder| folder.join("walrelay"));
    near.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        KitError::Other("no walrelay binary: `cargo build --release` or set WALRELAY_BIN".into())
    })
}

/// A relay process and its successors after [`RelayProcess::restart`].
pub struct RelayProcess {
    binary: PathBuf,
    folder: PathBuf,
    config: RelayConfig,
    admin: SocketAddr,
    child: Child,
    spawned_at: Instant,
    exit_code: Option<i32>,
    lines: Arc<Mutex<VecDeque<String>>>,
    captures: Vec<JoinHandle<()>>,
}

impl RelayProcess {
    /// Writes `walrelay.toml` into `folder` (made if missing) and runs `walrelay run` with it.
    pub fn start(binary: &Path, folder: &Path, config: RelayConfig) -> KitResult<RelayProcess> {
        std::fs::create_dir_all(folder).map_err(KitError::io("make the relay's folder"))?;
        let admin = free_address()?;
        let file = folder.join("walrelay.toml");
        std::fs::write(&file, config.toml(admin)).map_err(KitError::io("write walrelay.toml"))?;
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let (child, captures) = spawn(binary, folder, &config, &lines)?;
        Ok(RelayProcess {
            binary: binary.into(),
            folder: folder.into(),
            config,
            admin,
            child,
            spawned_at: Instant::now(),
            exit_code: None,
            lines,
            captures,
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When the current process was started.
    pub fn spawned_at(&self) -> Instant {
        self.spawned_at
    }

    /// Where its admin server listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.poll_exit().is_none()
    }

    /// Its exit code once it has ended; minus the signal that killed it.
    fn poll_exit(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        if self.exit_code.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            let signalled = || -status.signal().unwrap_or(0);
            self.exit_code = Some(status.code().unwrap_or_else(signalled));
            self.hear_out();
        }
        self.exit_code
    }

    /// Lets what an ended process said last arrive; bounded, for a child of it may hold the pipe.
    fn hear_out(&self) {
        let ended = Instant::now();
        while !self.captures.iter().all(JoinHandle::is_finished)
            && ended.elapsed() < Duration::from_secs(1)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&mut self, signal: Signal) -> KitResult<()> {
        // An ended process was reaped: its pid may be someone else's by now.
        match self.poll_exit() {
            Some(code) => Err(KitError::Other(format!("the relay has ended with {code}"))),
            None => proc::signal(self.pid(), signal),
        }
    }

    /// Kills it and waits for its end. One that ended before is no error.
    pub fn kill9(&mut self) -> KitResult<()> {
        if self.is_running() {
            self.signal(Signal::KILL)?;
        }
        self.wait_exit(Duration::from_secs(10)).map(drop)
    }

    /// Asks it to stop.
    pub fn sigterm(&mut self) -> KitResult<()> {
        self.signal(Signal::TERM)
    }

    /// SIGSTOP.
    pub fn freeze(&mut self) -> KitResult<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn thaw(&mut self) -> KitResult<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for its end and tells the exit code, or minus the signal that killed it.
    pub fn wait_exit(&mut self, timeout: Duration) -> KitResult<i32> {
        let began = Instant::now();
        loop {
            if let Some(code) = self.poll_exit() {
                return Ok(code);
            }
            if began.elapsed() > timeout {
                let what = format!("the relay's exit\n{}", self.tail(20));
                return Err(KitError::Timeout { what, waited: timeout });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it if it runs, and starts a new process with the same configuration.
    pub fn restart(&mut self) -> KitResult<()> {
        self.kill9()?;
        (self.child, self.captures) = spawn(&self.binary, &self.folder, &self.config, &self.lines)?;
        self.spawned_at = Instant::now();
        self.exit_code = None;
        Ok(())
    }

    /// Waits until `/readyz` says 200; an exit ends the wait with what the relay said.
    pub fn wait_ready(&mut self, timeout: Duration) -> KitResult<()> {
        let began = Instant::now();
        let mut last = String::from("no answer");
        loop {
            if let Some(code) = self.poll_exit() {
                let said = self.tail(40);
                return Err(KitError::Other(format!("the relay ended with {code}\n{said}")));
            }
            match get(self.admin, "/readyz", Duration::from_secs(1)) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) => last = format!("{} {}", answer.status, answer.body.trim()),
                Err(_) => {}
            }
            if began.elapsed() > timeout {
                let what = format!("/readyz, last: {last}\n{}", self.tail(40));
                return Err(KitError::Timeout { what, waited: timeout });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Every sample of `/metrics`, by name and labels as exposed: `up`, `x_total{outcome="y"}`.
    pub fn metrics(&self) -> KitResult<BTreeMap<String, f64>> {
        let answer = get(self.admin, "/metrics", Duration::from_secs(5))?;
        match answer.status {
            200 => Ok(http::parse_metrics(&answer.body)),
            status => Err(KitError::Other(format!("/metrics answered {status}"))),
        }
    }

    /// What it said last, at most `count` lines.
    pub fn tail(&self, count: usize) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = lines.len().saturating_sub(count);
        lines.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }

    /// Whether any kept line of its output contains `text`.
    pub fn said(&self, text: &str) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|line| line.contains(text))
    }

    /// The file with all its output.
    pub fn log_file(&self) -> PathBuf {
        log_file(&self.folder)
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        drop(self.kill9());
    }
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("walrelay.log")
}

fn spawn(
    binary: &Path,
    folder: &Path,
    config: &RelayConfig,
    lines: &Arc<Mutex<VecDeque<String>>>,
) -> KitResult<(Child, Vec<JoinHandle<()>>)> {
    let mut command = proc::tied_command(binary);
    command.args(["run", "--config"]).arg(folder.join("walrelay.toml")).current_dir(folder);
    // Settings of the caller's own, and what steers the test: the relay refuses names it does not
    // know.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WALRELAY_") {
            command.env_remove(name);
        }
    }
    // Where its crash file is made.
    command.env("TMPDIR", folder);
    command.envs(config.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starting = || format!("start {}", binary.display());
    let mut child = proc::spawn_tied(command).map_err(KitError::io(starting()))?;
    let log = OpenOptions::new().create(true).append(true).open(log_file(folder));
    let log = Arc::new(log.map_err(KitError::io("open walrelay.log"))?);
    let stdout = child.stdout.take().map(|stream| capture(stream, &log, lines));
    let stderr = child.stderr.take().map(|stream| capture(stream, &log, lines));
    Ok((child, stdout.into_iter().chain(stderr).collect()))
}

/// Copies a stream until its end, on a thread of its own: a full pipe would stop the relay.
fn capture(
    stream: impl Read + Send + 'static,
    log: &Arc<File>,
    lines: &Arc<Mutex<VecDeque<String>>>,
) -> JoinHandle<()> {
    let (log, lines) = (log.clone(), lines.clone());
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            drop((&*log).write_all(format!("{line}\n").as_bytes()));
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    })
}

fn free_address() -> KitResult<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(KitError::io("find a free port"))?;
    listener.local_addr().map_err(KitError::io("find a free port"))
}

#[cfg(test)]
#[path = "relay/tests.rs"]
mod tests;

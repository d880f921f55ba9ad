//! A program under test as a process: started, killed, frozen, asked what it said.
//!
//! Everything it says goes to a file in its folder and, bounded, into memory, across restarts, so
//! that a failing test can show it. The process ends with its owner: on drop by its pid, and by
//! the kernel when the test itself is killed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::kit::{lock, wait_at_most};
use crate::process::without_variables;
use crate::{HarnessError, Result, proc, relay};

/// Lines of output kept in memory; the file has all of them.
const LINES_MAX: usize = 20_000;

/// The program that is started, and started again after a kill.
#[derive(Clone, Debug)]
pub struct Launch {
    /// For people, and for the name of its log.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub env: Vec<(String, String)>,
    /// Its current folder, where its log lies too; made if missing.
    pub folder: PathBuf,
}

impl Launch {
    fn log_file(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }
}

/// A process and its successors after [`Program::restart`].
pub struct Program {
    pub(crate) launch: Launch,
    child: Child,
    spawned_at: Instant,
    exit_code: Option<i32>,
    lines: Arc<Mutex<VecDeque<String>>>,
    captures: Vec<JoinHandle<()>>,
}

impl Program {
    pub fn start(launch: Launch) -> Result<Program> {
        let made = std::fs::create_dir_all(&launch.folder);
        made.map_err(HarnessError::io(format!("make the folder of {}", launch.name)))?;
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let (child, captures) = spawn(&launch, &lines)?;
        let spawned_at = Instant::now();
        Ok(Program { launch, child, spawned_at, exit_code: None, lines, captures })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn spawned_at(&self) -> Instant {
        self.spawned_at
    }

    pub fn is_running(&mut self) -> bool {
        self.poll_exit().is_none()
    }

    /// Its exit code once it has ended; minus the signal that killed it.
    pub(crate) fn poll_exit(&mut self) -> Option<i32> {
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
        wait_at_most(Duration::from_secs(1), Duration::from_millis(1), || {
            Ok(self.captures.iter().all(JoinHandle::is_finished).then_some(()))
        })
        .ok();
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        // An ended process was reaped: its pid may be someone else's by now.
        match self.poll_exit() {
            Some(code) => {
                Err(HarnessError::Other(format!("{} has ended with {code}", self.launch.name)))
            }
            None => proc::signal(self.pid(), signal),
        }
    }

    /// Kills it and waits for its end. One that ended before is no error.
    pub fn kill9(&mut self) -> Result<()> {
        if self.is_running() {
            self.signal(Signal::KILL)?;
        }
        self.wait_exit(Duration::from_secs(10)).map(drop)
    }

    /// Asks it to stop, once it can hear that: in its first milliseconds any program would be
    /// ended by the signal.
    pub fn sigterm(&mut self) -> Result<()> {
        wait_at_most(Duration::from_secs(10), Duration::from_millis(1), || {
            let is_heard = !self.is_running() || proc::is_handled(self.pid(), Signal::TERM);
            Ok(is_heard.then_some(()))
        })?;
        self.signal(Signal::TERM)
    }

    /// Asks it to stop, and waits until it has: with exit code 0, or it is an error.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        self.sigterm()?;
        match self.wait_exit(limit)? {
            0 => Ok(()),
            code => Err(self.ended(code, 20)),
        }
    }

    /// Waits until it answers a GET with 200; an exit ends the wait with what it said.
    pub(crate) fn wait_answer(
        &mut self,
        address: SocketAddr,
        path: &str,
        limit: Duration,
    ) -> Result<()> {
        let mut last = String::from("no answer");
        let answered = wait_at_most(limit, Duration::from_millis(5), || {
            if let Some(code) = self.poll_exit() {
                return Err(self.ended(code, 40));
            }
            match relay::get(address, path, Duration::from_secs(1)) {
                Ok(answer) if answer.status == 200 => return Ok(Some(())),
                Ok(answer) => last = format!("{} {}", answer.status, answer.body.trim()),
                Err(_) => {}
            }
            Ok(None)
        })?;
        answered.ok_or_else(|| {
            let (name, said) = (&self.launch.name, self.tail(40));
            let what = format!("{path} of {name}, last: {last}\n{said}");
            HarnessError::Late { what, limit }
        })
    }

    fn ended(&self, code: i32, lines: usize) -> HarnessError {
        let (name, said) = (&self.launch.name, self.tail(lines));
        HarnessError::Other(format!("{name} ended with {code}\n{said}"))
    }

    pub fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for its end and tells the exit code, or minus the signal that killed it.
    pub fn wait_exit(&mut self, timeout: Duration) -> Result<i32> {
        let ended = wait_at_most(timeout, Duration::from_millis(1), || Ok(self.poll_exit()))?;
        ended.ok_or_else(|| {
            let what = format!("the exit of {}\n{}", self.launch.name, self.tail(20));
            HarnessError::Late { what, limit: timeout }
        })
    }

    /// Kills it if it runs, and starts a new process the same way.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        (self.child, self.captures) = spawn(&self.launch, &self.lines)?;
        self.spawned_at = Instant::now();
        self.exit_code = None;
        Ok(())
    }

    /// The last lines of the program's output, at most `count`.
    pub fn tail(&self, count: usize) -> String {
        let lines = lock(&self.lines);
        let skip = lines.len().saturating_sub(count);
        lines.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }

    pub fn said(&self, text: &str) -> bool {
        lock(&self.lines).iter().any(|line| line.contains(text))
    }

    pub fn log_file(&self) -> PathBuf {
        self.launch.log_file()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.kill9());
    }
}

fn spawn(
    launch: &Launch,
    lines: &Arc<Mutex<VecDeque<String>>>,
) -> Result<(Child, Vec<JoinHandle<()>>)> {
    let mut command = proc::tied_command(&launch.program);
    command.args(&launch.arguments).current_dir(&launch.folder);
    // Settings of the caller's own, and what steers the test: the relay refuses names it does not
    // know.
    without_variables(&mut command, "WALRELAY_");
    // Only a test that names a state file has one.
    command.env_remove("STATE_DIRECTORY");
    command.envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starting = format!("start {}", launch.program.display());
    let mut child = proc::spawn_tied(command).map_err(HarnessError::io(starting))?;
    let file = launch.log_file();
    let log = OpenOptions::new().create(true).append(true).open(&file);
    let log = Arc::new(log.map_err(HarnessError::io(format!("open {}", file.display())))?);
    let stdout = child.stdout.take().map(|stream| capture(stream, &log, lines));
    let stderr = child.stderr.take().map(|stream| capture(stream, &log, lines));
    Ok((child, stdout.into_iter().chain(stderr).collect()))
}

/// Copies a stream until its end, on a thread of its own: a full pipe would stop the program.
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
            let mut lines = lock(&lines);
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    })
}

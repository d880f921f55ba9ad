//! One service's process: start, signal, wait, and never leave it behind.
//!
//! A service leads its own process group, so that one signal reaches all it started. It is born
//! behind a gate, a shell that waits for one line before it becomes the service: the guard learns
//! the group first, and there is no moment in which a dying starter could leave a running service.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::install::service_folder;
use crate::kit::wait_for;
use crate::place::Place;
use crate::{HarnessError, Result};

const GATE: &str = r#"read -r line && exec "$@" </dev/null"#;
const POLL: Duration = Duration::from_millis(5);
/// Between two looks at a service that is being started.
pub(crate) const START_POLL: Duration = Duration::from_millis(20);
const LOG_TAIL_LINES: usize = 20;
const LOG_BYTES_MAX: u64 = 256 * 1024;
const END_LIMIT: Duration = Duration::from_secs(30);
const FREEZE_LIMIT: Duration = Duration::from_secs(5);
const DROP_LIMIT: Duration = Duration::from_secs(3);

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) short: &'static str,
    /// The signal that ends it at once and yet leaves nothing behind.
    pub(crate) end: &'static str,
}

/// A service's process with its folder, log and guard. Dropping it ends and removes all.
pub struct Process {
    kind: Kind,
    place: Place,
    folder: PathBuf,
    log: PathBuf,
    log_start: u64,
    child: Option<Child>,
    pid: u32,
    // Dropped last: it removes the folder.
    guard: Guard,
}

impl Process {
    /// A folder and a guard, nothing running yet. `last_command` is shell text for the guard.
    pub(crate) fn new(kind: Kind, place: Place, last_command: &str) -> Result<Process> {
        let folder = service_folder(kind.short, place.user)?;
        let guard = Guard::new(&folder, kind.end, last_command)?;
        let log = folder.join("log");
        Ok(Process { kind, place, folder, log, log_start: 0, child: None, pid: 0, guard })
    }

    /// Everything of this service lies here; it is removed with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The id of the running process, or of the last one.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes a file into its folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let written = std::fs::write(&path, text);
        written.map_err(HarnessError::io(format!("writing {}", path.display())))
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        self.place.command(program.as_ref(), &self.folder)
    }

    pub(crate) fn spawn(&mut self, command: &Command) -> Result<()> {
        if self.child.is_some() {
            return Err(HarnessError::Other(format!("{} runs already", self.kind.name)));
        }
        let doing = format!("starting {}", self.kind.name);
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(HarnessError::io(&doing))?;
        self.log_start = log.metadata().map_err(HarnessError::io(&doing))?.len();
        let errors = log.try_clone().map_err(HarnessError::io(&doing))?;
        let mut gated = self.command("/bin/sh");
        gated.args(["-c", GATE, "gate"]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => gated.env(key, value),
                None => gated.env_remove(key),
            };
        }
        gated.stdin(Stdio::piped()).stdout(log).stderr(errors).process_group(0);
        let mut child = gated.spawn().map_err(HarnessError::io(&doing))?;
        self.pid = child.id();
        let gate = child.stdin.take();
        self.child = Some(child);
        self.guard.watch(self.pid)?;
        let mut gate = gate.ok_or_else(|| HarnessError::Other("gate without pipe".into()))?;
        gate.write_all(b"go\n").map_err(HarnessError::io(&doing))
    }

    /// How the service ended; none while it runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        let status = child.try_wait().map_err(HarnessError::io("waiting for a service"))?;
        if status.is_some() {
            self.child = None;
            // The number is free for another process now; the guard must not kill that one.
            self.guard.watch(0)?;
        }
        Ok(status)
    }

    /// The service has been started and has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.ended(), Ok(None)) && self.child.is_some()
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        self.send(signal, self.pid.to_string())
    }

    /// Sends a signal to the service and all that it started.
    pub(crate) fn signal_group(&self, signal: &str) -> Result<()> {
        self.send(signal, format!("-{}", self.pid))
    }

    pub fn kill9(&mut self) -> Result<()> {
        self.signal_group("KILL")?;
        self.wait(END_LIMIT).map(drop)
    }

    pub fn stop(&mut self) -> Result<()> {
        self.signal("TERM")?;
        self.wait(END_LIMIT).map(drop)
    }

    /// Stops the service and all that it started: connections stay open, nothing answers. Returns
    /// when every thread has stopped.
    pub fn freeze(&self) -> Result<()> {
        self.signal_group("STOP")?;
        // The signal is only sent by now: threads may go on, and answer, for a moment.
        let what = format!("the freeze of {}", self.kind.name);
        wait_for(what, FREEZE_LIMIT, Duration::from_millis(1), || {
            Ok(all_threads_stand(self.pid).then_some(()))
        })
    }

    pub fn thaw(&self) -> Result<()> {
        self.signal_group("CONT")
    }

    fn send(&self, signal: &str, target: String) -> Result<()> {
        if self.child.is_none() {
            return Err(HarnessError::Other(format!("{} does not run", self.kind.name)));
        }
        kill(signal, &target)
    }

    /// Waits for the service's end; says how long that took.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        wait_for(format!("the end of {}", self.kind.name), limit, POLL, || {
            Ok((self.child.is_none() || self.ended()?.is_some()).then(|| start.elapsed()))
        })
    }

    /// Waits until the service answers. Its end, or silence for `limit`, is a failure.
    pub(crate) fn wait_ready(
        &mut self,
        limit: Duration,
        mut answers: impl FnMut(&Process) -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        while !self.is_ready(began, limit, &mut answers)? {
            std::thread::sleep(START_POLL);
        }
        Ok(())
    }

    /// One look at a service that was started at `began`.
    pub(crate) fn is_ready(
        &mut self,
        began: Instant,
        limit: Duration,
        answers: impl FnOnce(&Process) -> bool,
    ) -> Result<bool> {
        if let Some(status) = self.ended()? {
            return Err(self.start_error(format!("it ended with {status}")));
        }
        if answers(self) {
            return Ok(true);
        }
        if began.elapsed() >= limit {
            let reason = format!("no answer within {} ms", limit.as_millis());
            return Err(self.start_error(reason));
        }
        Ok(false)
    }

    /// Ends the service with `signal`, frozen or not; nothing when it has ended already.
    fn end(&mut self, signal: &str) -> Result<()> {
        if self.is_running() {
            self.signal_group(signal)?;
            self.thaw()?;
            self.wait(DROP_LIMIT)?;
        }
        Ok(())
    }

    fn start_error(&self, reason: String) -> HarnessError {
        HarnessError::Start { service: self.kind.name, reason, log_tail: self.log_tail() }
    }

    /// The end of the log that the service has written since it was last started.
    pub fn recent_log(&self) -> String {
        read_end(&self.log, self.log_start, LOG_BYTES_MAX).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let text = self.recent_log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.end(self.kind.end).or_else(|_| self.end("KILL"));
        if let Err(error) = ended {
            // The guard tries once more.
            eprintln!("{} (pid {}): {error}", self.kind.name, self.pid);
        }
    }
}

/// Runs a tool to its end; its standard output, or all it said when it failed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let tool = || {
        let name = command.get_program().to_string_lossy().into_owned();
        name.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let tool = tool();
    let output = command.output().map_err(HarnessError::io(format!("running {tool}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stderr), text);
    Err(HarnessError::Tool { tool, output: said })
}

/// PGSERVICE, PGOPTIONS and the like belong to the caller's own databases.
pub(crate) fn without_pg_variables(command: &mut Command) -> &mut Command {
    without_variables(command, "PG")
}

/// Variables of the caller's own that begin so are not for the command.
pub(crate) fn without_variables<'a>(command: &'a mut Command, prefix: &str) -> &'a mut Command {
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with(prefix) {
            command.env_remove(key);
        }
    }
    command
}

/// Signals a process, or with a leading dash a process group.
pub(crate) fn kill(signal: &str, target: &str) -> Result<()> {
    // The shell's own `kill`: always there, and no foreign-function call is needed.
    run(Command::new("/bin/sh").args(["-c", r#"kill -s "$1" -- "$2""#, "kill", signal, target]))
        .map(drop)
}

/// The process exists and is more than a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    state(Path::new(&format!("/proc/{pid}/stat"))).is_some_and(|state| state != "Z")
}

fn all_threads_stand(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = tasks.filter_map(|task| state(&task.path().join("stat")));
    states.all(|state| state == "T")
}

/// The command name before the state may hold anything, so read past its bracket.
fn state(stat: &Path) -> Option<String> {
    let text = std::fs::read_to_string(stat).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().next()?.to_owned())
}

fn read_end(path: &Path, from: u64, max_bytes: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(max_bytes).max(from);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

//! Cost of a process, read from `/proc`, and child processes that do not outlive their starter.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

use rustix::process::{Pid, Signal};
pub use walrelay_measure::process::{Memory, cpu_seconds, memory, tree_cpu_seconds};

use crate::{HarnessError, Result};

pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let target = raw.ok_or_else(|| HarnessError::Other(format!("{pid} is no process id")))?;
    rustix::process::kill_process(target, signal)
        .map_err(|errno| HarnessError::io(format!("signal {pid}"))(errno.into()))
}

/// Whether the process has a handler of its own for the signal, which would end it otherwise.
pub fn is_handled(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let handled = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let handled = handled.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    handled.unwrap_or(0) & (1 << (signal.as_raw() - 1)) != 0
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// A command whose process the kernel kills when its starter dies; start it with [`spawn_tied`].
///
/// `setpriv` (util-linux) sets the parent-death signal and execs the program: same pid, no wrapper
/// left. Without it the process is not tied.
pub fn tied_command(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a command from a thread that lives as long as this process: the kernel ties a child to
/// the *thread* that forked it, and a test's thread ends before its process does.
pub fn spawn_tied(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in orders {
                drop(reply.send(command.spawn()));
            }
        });
        sender
    });
    let gone = || io::Error::other("the spawner thread is gone");
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

//! Cost of a process, read from `/proc`, and child processes that do not outlive their starter.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::kit::{Session, block_on};
use crate::process::children;
use crate::{HarnessError, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    /// Of it now, pages of files: mostly the program's own code.
    pub file_bytes: u64,
}

/// User and system CPU seconds a process has used so far, all threads.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    Ok(cpu(pid)?.own)
}

/// The same with all that it started: those that run, and those whose end it waited for.
pub fn tree_cpu_seconds(pid: u32) -> Result<f64> {
    let Cpu { own, ended_children } = cpu(pid)?;
    // One that ends meanwhile was counted above or is counted next time.
    let running = children(pid).into_iter().filter_map(|child| tree_cpu_seconds(child).ok());
    Ok(own + ended_children + running.sum::<f64>())
}

/// In seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cpu {
    own: f64,
    /// And their own, if they waited for them.
    ended_children: f64,
}

fn cpu(pid: u32) -> Result<Cpu> {
    let [user, system, child_user, child_system] = parse_cpu_ticks(&read_proc(pid, "stat")?)
        .ok_or_else(|| HarnessError::Other(format!("/proc/{pid}/stat is not understood")))?;
    let seconds = |ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Ok(Cpu { own: seconds(user + system), ended_children: seconds(child_user + child_system) })
}

pub fn memory(pid: u32) -> Result<Memory> {
    parse_memory(&read_proc(pid, "status")?)
        .ok_or_else(|| HarnessError::Other(format!("process {pid} has no memory: it has ended")))
}

pub fn load_average() -> Result<[f64; 3]> {
    let text =
        std::fs::read_to_string("/proc/loadavg").map_err(HarnessError::io("/proc/loadavg"))?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    let mut next = || numbers.next().unwrap_or(0.0);
    Ok([next(), next(), next()])
}

fn read_proc(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).map_err(HarnessError::io(path))
}

/// utime, stime, cutime, cstime. The command name may hold spaces and brackets: fields count from
/// the last `)`.
fn parse_cpu_ticks(stat: &str) -> Option<[u64; 4]> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_whitespace().skip(11).map_while(|field| field.parse().ok());
    fields.take(4).collect::<Vec<u64>>().try_into().ok()
}

fn parse_memory(status: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1_024)
    };
    let (rss_bytes, peak_rss_bytes) = (field("VmRSS:")?, field("VmHWM:")?);
    Some(Memory { rss_bytes, peak_rss_bytes, file_bytes: field("RssFile:")? })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walsender {
    pub pid: u32,
    pub application_name: String,
}

pub fn walsenders(url: &str) -> Result<Vec<Walsender>> {
    block_on(async {
        let session = Session::open(url).await?;
        let sql = "select pid, coalesce(application_name, '') from pg_stat_replication";
        let rows = session.client.query(sql, &[]).await?;
        let read = |row: &tokio_postgres::Row| Walsender {
            pid: u32::try_from(row.get::<_, i32>(0)).unwrap_or(0),
            application_name: row.get(1),
        };
        Ok(rows.iter().map(read).collect())
    })
}

pub fn walsender_cpu_seconds(url: &str) -> Result<f64> {
    walsenders(url)?.iter().map(|walsender| cpu_seconds(walsender.pid)).sum()
}

pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let target = raw.ok_or_else(|| HarnessError::Other(format!("{pid} is no process id")))?;
    rustix::process::kill_process(target, signal)
        .map_err(|errno| HarnessError::io(format!("signal {pid}"))(errno.into()))
}

pub struct MemorySampler {
    peak_bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemorySampler {
    /// Samples `VmRSS` every `interval`. Unlike `VmHWM` it forgets what was before its start.
    pub fn start(pid: u32, interval: Duration) -> MemorySampler {
        let peak_bytes = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (peak, ended) = (peak_bytes.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let Ok(now) = memory(pid) else { return };
                peak.fetch_max(now.rss_bytes, Ordering::Relaxed);
                std::thread::park_timeout(interval);
            }
        });
        MemorySampler { peak_bytes, stop, thread: Some(thread) }
    }

    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Ends the watch and tells the highest sample.
    pub fn stop(self) -> u64 {
        self.peak_bytes()
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
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

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn cpu_ticks_survive_a_hostile_command_name() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 1 0 100 1 1";
        assert_eq!(parse_cpu_ticks(stat), Some([250, 50, 7, 8]));
        assert_eq!(parse_cpu_ticks("nonsense"), None);
    }

    #[test]
    fn memory_is_read_in_bytes_and_a_zombie_has_none() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssFile:\t 512 kB\n";
        let (rss_bytes, peak_rss_bytes) = (1 << 20, 2 << 20);
        let want = Memory { rss_bytes, peak_rss_bytes, file_bytes: 1 << 19 };
        assert_eq!(parse_memory(status), Some(want));
        assert_eq!(parse_memory("Name:\tx\nState:\tZ\n"), None);
    }

    #[test]
    fn this_process_costs_something() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        let now = memory(pid).unwrap();
        assert!(now.rss_bytes > 0 && now.peak_rss_bytes >= now.rss_bytes / 2);
        assert!(load_average().unwrap().iter().all(|load| *load >= 0.0));
        assert!(cpu_seconds(u32::MAX).is_err());
    }

    #[test]
    fn the_cost_of_children_that_have_ended_is_counted() {
        // GIVEN a shell that has waited for a subshell with some work
        let work = "(i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; true)";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{work}; echo; read -r line")]);
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = shell.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).unwrap();
        // THEN it has cost more than the shell itself
        let (own, all) = (cpu_seconds(shell.id()).unwrap(), tree_cpu_seconds(shell.id()).unwrap());
        assert!(all > own, "{all} s, {own} s of them its own");
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn a_sampler_sees_a_peak() {
        let sampler = MemorySampler::start(std::process::id(), Duration::from_millis(1));
        while sampler.peak_bytes() == 0 {
            std::thread::yield_now();
        }
        assert!(sampler.stop() > 0);
    }

    #[test]
    fn a_tied_process_keeps_its_pid_and_takes_signals() {
        // GIVEN a tied program that prints its own pid and waits
        let mut command = tied_command(Path::new("/bin/sh"));
        command.args(["-c", "echo $$; exec sleep 60"]).stdout(Stdio::piped());
        let mut child = spawn_tied(command).unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).unwrap();
        // THEN it is the process that was spawned
        assert_eq!(line.trim(), child.id().to_string());
        // WHEN it is told to end, THEN it does
        signal(child.id(), Signal::TERM).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(signal(0, Signal::TERM).is_err(), "pid 0 would be our own process group");
    }
}

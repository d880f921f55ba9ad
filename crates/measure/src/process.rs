//! CPU time and memory of processes, from `/proc`. See proc_pid_stat(5).

use std::fmt;
use std::fs::read_to_string;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// CPU is counted in ticks of 10 ms: looking more often shows nothing.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// A file of `/proc` that cannot be read or understood, mostly because its process has ended.
#[derive(Debug)]
pub struct ProcError {
    path: String,
    reason: String,
}

type Result<T> = std::result::Result<T, ProcError>;

impl fmt::Display for ProcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

impl std::error::Error for ProcError {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    /// The part of it that is pages of files: mostly the program's own code.
    pub file_bytes: u64,
}

/// User and system CPU seconds that a process has used so far, in all its threads.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let [user, system, ..] = cpu_ticks(&stat(&pid.to_string())?)?;
    Ok(seconds(user + system))
}

/// The CPU seconds of a process and of all that it started: those that run, and those whose end it waited for.
pub fn tree_cpu_seconds(pid: u32) -> Result<f64> {
    let ticks = cpu_ticks(&stat(&pid.to_string())?)?;
    // One that ends meanwhile was counted above or is counted next time.
    let running = children(pid).into_iter().filter_map(|child| tree_cpu_seconds(child).ok());
    Ok(seconds(ticks.iter().sum()) + running.sum::<f64>())
}

/// The CPU seconds of the calling thread; 0 where there is no `/proc`.
pub fn thread_cpu_seconds() -> f64 {
    let ticks = stat("thread-self").and_then(|stat| cpu_ticks(&stat));
    ticks.map_or(0.0, |[user, system, ..]| seconds(user + system))
}

/// Resident bytes and CPU seconds of the calling process; none where there is no `/proc`.
pub fn own_usage() -> Option<(u64, f64)> {
    let [user, system, ..] = cpu_ticks(&stat("self").ok()?).ok()?;
    let resident_bytes = parse_kb(&read_to_string("/proc/self/status").ok()?, "VmRSS:")?;
    Some((resident_bytes, seconds(user + system)))
}

/// Rounds CPU time to the unit in which it is counted.
pub fn in_ticks(seconds: f64) -> f64 {
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    (seconds * per_second).round() / per_second
}

/// Fails for a process that has ended, also if nobody has waited for it.
pub fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    parse_memory(&read(&path)?).ok_or_else(|| error(&path, "no memory: the process has ended"))
}

/// The memory of the machine; 0 where it is not known.
pub fn machine_memory_bytes() -> u64 {
    parse_kb(&read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:").unwrap_or_default()
}

/// The load average of the last minute; 0 where it is not known.
pub fn load_average() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

/// Is this process one of that name which started about then? The pid of a process on another machine or in another
/// namespace belongs to some other process here.
pub fn is_named(pid: u32, name: &str, began_unix_s: f64) -> bool {
    let comm = read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let ticks = stat(&pid.to_string()).ok().and_then(|stat| field(&stat, 19)?.parse().ok());
    let (Some(ticks), Some(boot_s)) = (ticks, boot_unix_s()) else { return false };
    comm.trim() == name && (boot_s + seconds(ticks) - began_unix_s).abs() < 3.0
}

/// Processes whose parent is `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| field(&stat(&pid.to_string()).ok()?, 1)?.parse::<u32>().ok();
    pids.filter(|candidate| parent(*candidate) == Some(pid)).collect()
}

fn boot_unix_s() -> Option<f64> {
    let uptime = read_to_string("/proc/uptime").ok()?;
    let up_s: f64 = uptime.split(' ').next()?.parse().ok()?;
    Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64() - up_s)
}

fn error(path: &str, reason: impl ToString) -> ProcError {
    ProcError { path: path.to_owned(), reason: reason.to_string() }
}

fn read(path: &str) -> Result<String> {
    read_to_string(path).map_err(|reason| error(path, reason))
}

fn stat(process: &str) -> Result<String> {
    read(&format!("/proc/{process}/stat"))
}

/// A field of `stat`, counted after the name of the program, which may contain spaces and brackets.
fn field(stat: &str, at: usize) -> Option<&str> {
    stat.rsplit_once(") ")?.1.split(' ').nth(at)
}

/// utime, stime, cutime, cstime.
fn cpu_ticks(stat: &str) -> Result<[u64; 4]> {
    let ticks = [11, 12, 13, 14].map(|at| field(stat, at).and_then(|text| text.parse().ok()));
    let [Some(user), Some(system), Some(of_children), Some(system_of_children)] = ticks else {
        return Err(error("/proc/PID/stat", "unknown fields"));
    };
    Ok([user, system, of_children, system_of_children])
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn parse_memory(status: &str) -> Option<Memory> {
    Some(Memory {
        rss_bytes: parse_kb(status, "VmRSS:")?,
        peak_rss_bytes: parse_kb(status, "VmHWM:")?,
        file_bytes: parse_kb(status, "RssFile:")?,
    })
}

fn parse_kb(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Watches a process that may end by itself: its last figures survive it.
pub struct Watch {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    cpu_ms: AtomicU64,
    peak_rss_bytes: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    pub fn start(pid: u32) -> Watch {
        let seen = Arc::new(Seen::default());
        let own = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            while !own.stop.load(Relaxed) {
                let Ok(seconds) = cpu_seconds(pid) else { return };
                own.cpu_ms.fetch_max((seconds * 1000.0) as u64, Relaxed);
                if let Ok(memory) = memory(pid) {
                    own.peak_rss_bytes.fetch_max(memory.peak_rss_bytes, Relaxed);
                }
                std::thread::park_timeout(WATCH_INTERVAL);
            }
        });
        Watch { seen, thread: Some(thread) }
    }

    /// User and system CPU seconds so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.seen.cpu_ms.load(Relaxed) as f64 / 1000.0
    }

    /// The most memory that was ever resident.
    pub fn peak_rss_bytes(&self) -> u64 {
        self.seen.peak_rss_bytes.load(Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seen.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn ticks_are_read_behind_a_hostile_name() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 1 0 100 1 1";
        assert_eq!(cpu_ticks(stat).unwrap(), [250, 50, 7, 8]);
        assert_eq!(field(stat, 19), Some("100"));
        assert!(cpu_ticks("nonsense").is_err());
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
    fn this_process_has_a_cost_and_another_one_has_none() {
        let pid = std::process::id();
        let now = memory(pid).unwrap();
        assert!(now.rss_bytes > 0 && now.peak_rss_bytes >= now.rss_bytes / 2);
        assert!(cpu_seconds(pid).unwrap() >= thread_cpu_seconds());
        assert!(cpu_seconds(u32::MAX).is_err());
        assert!(machine_memory_bytes() > now.rss_bytes);
        let watch = Watch::start(pid);
        while watch.peak_rss_bytes() == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_known_by_its_name_and_the_time_of_its_start() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        // The name is that of the test until the program is executed.
        while !is_named(child.id(), "sleep", now_s) {
            std::thread::yield_now();
        }
        assert!(!is_named(child.id(), "postgres", now_s));
        assert!(!is_named(child.id(), "sleep", now_s - 60.0));
        child.kill().unwrap();
        child.wait().unwrap();
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
        BufReader::new(stdout).read_line(&mut line).unwrap();
        // THEN it has cost more than the shell itself
        let (own, all) = (cpu_seconds(shell.id()).unwrap(), tree_cpu_seconds(shell.id()).unwrap());
        assert!(all > own, "{all} s, {own} s of them its own");
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}

//! CPU time and memory of other processes, from `/proc`. See proc_pid_stat(5).

use std::fs::read_to_string;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::report::Machine;

/// `USER_HZ`, which is 100 on every architecture that Rust builds Linux programs for.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of a process; none when there is no such process here.
pub(super) fn cpu_s(pid: u32) -> Option<f64> {
    parse_cpu_s(&read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Rounds CPU time to the unit in which it is counted.
pub(super) fn in_ticks(seconds: f64) -> f64 {
    (seconds * TICKS_PER_SECOND).round() / TICKS_PER_SECOND
}

pub(super) fn rss_peak_bytes(pid: u32) -> Option<u64> {
    parse_kb(&read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM:")
}

/// Is this process a Postgres that started at this time? The pid of a backend on another machine or
/// in another namespace belongs to some other process here.
pub(super) fn is_postgres(pid: u32, began_unix_s: f64) -> bool {
    let comm = read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let found = read_to_string(format!("/proc/{pid}/stat")).ok();
    let ticks = found.and_then(|stat| field(&stat, 19)?.parse::<f64>().ok());
    let boot = boot_unix_s();
    let (Some(ticks), Some(boot)) = (ticks, boot) else { return false };
    let away_s = (boot + ticks / TICKS_PER_SECOND - began_unix_s).abs();
    comm.trim() == "postgres" && away_s < 3.0
}

/// `database_is_local` is left to the caller.
pub(super) fn machine() -> Machine {
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: parse_kb(&memory, "MemTotal:").unwrap_or_default(),
        load_average: load_average(),
        database_is_local: false,
    }
}

/// Of the last minute.
pub(super) fn load_average() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

fn boot_unix_s() -> Option<f64> {
    let uptime = read_to_string("/proc/uptime").ok()?;
    let up_s: f64 = uptime.split(' ').next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Some(now.as_secs_f64() - up_s)
}

/// A field of `stat`, counted after the name of the program, which itself may contain ") ".
fn field(stat: &str, at: usize) -> Option<&str> {
    stat.rsplit_once(") ")?.1.split(' ').nth(at)
}

fn parse_cpu_s(stat: &str) -> Option<f64> {
    let ticks = |at| field(stat, at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

fn parse_kb(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
#[path = "process_stats_tests.rs"]
mod tests;

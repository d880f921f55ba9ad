//! Memory and CPU time of this process, from `/proc`. See proc_pid_stat(5), proc_pid_status(5).

/// Ticks per second in `/proc/PID/stat`. For user space Linux fixes this at 100 on every
/// architecture that Rust supports, whatever the frequency of the kernel's own timer.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    pub(super) resident_bytes: f64,
    pub(super) cpu_seconds: f64,
}

/// `None` where there is no `/proc`.
pub(super) fn usage() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(Usage { resident_bytes: parse_resident(&status)?, cpu_seconds: parse_cpu(&stat)? })
}

fn parse_resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn parse_cpu(stat: &str) -> Option<f64> {
    // The second field is the program's name in parentheses, which may itself contain ") ".
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    let user: f64 = times.next()?.parse().ok()?;
    let system: f64 = times.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;

//! Cost of processes, read seldom enough not to be a cost itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use walrelay_harness::proc;

/// CPU is counted in ticks of 10 ms: looking more often shows nothing.
const INTERVAL: Duration = Duration::from_millis(20);

/// Watches a process that may end by itself: its last figures survive it.
pub(crate) struct Watch {
    cpu_ms: Arc<AtomicU64>,
    peak_rss_bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(pid: u32) -> Watch {
        let (cpu_ms, peak_rss_bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (cpu, peak, ended) = (cpu_ms.clone(), peak_rss_bytes.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let Ok(seconds) = proc::cpu_seconds(pid) else { return };
                cpu.fetch_max((seconds * 1_000.0) as u64, Ordering::Relaxed);
                if let Ok(memory) = proc::memory(pid) {
                    peak.fetch_max(memory.peak_rss_bytes, Ordering::Relaxed);
                }
                std::thread::park_timeout(INTERVAL);
            }
        });
        Watch { cpu_ms, peak_rss_bytes, stop, thread: Some(thread) }
    }

    /// User and system CPU so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.cpu_ms.load(Ordering::Relaxed) as f64 / 1_000.0
    }

    /// Most that was ever resident.
    pub(crate) fn peak_rss_bytes(&self) -> u64 {
        self.peak_rss_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// User and system CPU of the calling thread; 0 where there is no `/proc`.
pub(crate) fn own_thread_cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return 0.0 };
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

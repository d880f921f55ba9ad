//! Who looks at a relay while it works: a Prometheus, a health check, and eight consoles.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use walrelay_harness::relay::get;

/// More often than most people scrape.
const EVERY: Duration = Duration::from_secs(1);
const CONSOLES: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);
const CONSOLE_EVERY: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Watchers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Watchers {
    pub(crate) fn start(admin: SocketAddr) -> Watchers {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |watch: fn(SocketAddr, &AtomicBool)| {
            let stop = stop.clone();
            std::thread::spawn(move || watch(admin, &stop))
        };
        let mut threads = vec![spawn(ask)];
        threads.extend((0..CONSOLES).map(|_| spawn(follow)));
        Watchers { stop, threads }
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// Asks what Prometheus and a health check ask. A relay that has ended answers nothing.
fn ask(admin: SocketAddr, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for path in ["/metrics", "/readyz"] {
            drop(get(admin, path, PATIENCE));
        }
        std::thread::park_timeout(EVERY);
    }
}

/// Asks as a console does: the status, and the samples of the history that are new.
fn follow(admin: SocketAddr, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(SAMPLE_EVERY).as_secs();
        for path in ["/status", &format!("/history?since={since}")] {
            drop(get(admin, path, PATIENCE));
        }
        std::thread::park_timeout(CONSOLE_EVERY);
    }
}

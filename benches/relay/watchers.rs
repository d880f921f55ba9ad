//! Who looks at a relay while it works: a Prometheus, a health check, and as many consoles as it admits.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use walrelay_harness::relay::get;

/// More often than most people scrape.
const EVERY: Duration = Duration::from_secs(1);
const CONSOLES: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether to stop.
const STOPS_WITHIN: Duration = Duration::from_millis(100);

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

/// What a console does: it follows `/events`, and comes again when that ends.
fn follow(admin: SocketAddr, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(stream) = TcpStream::connect_timeout(&admin, PATIENCE) {
            drop(read_events(stream, admin, stop));
        }
        std::thread::park_timeout(STOPS_WITHIN);
    }
}

fn read_events(mut stream: TcpStream, admin: SocketAddr, stop: &AtomicBool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(STOPS_WITHIN))?;
    write!(stream, "GET /events HTTP/1.1\r\nhost: {admin}\r\n\r\n")?;
    let mut answer = [0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut answer) {
            Ok(0) => break,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

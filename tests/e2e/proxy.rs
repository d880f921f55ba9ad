//! A TCP proxy whose connections can be cut or go silent: the network between relay and Postgres.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Forwards from a port of its own for as long as the test process lives.
pub(super) struct Proxy {
    pub(super) port: u16,
    links: Arc<Mutex<Vec<TcpStream>>>,
    opened: Arc<AtomicUsize>,
    /// Connections with a lower number carry nothing any more.
    silent_below: Arc<AtomicUsize>,
}

impl Proxy {
    pub(super) fn start(target_port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let links = Arc::new(Mutex::new(Vec::new()));
        let (opened, silent_below) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (own, counter, below) = (links.clone(), opened.clone(), silent_below.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A Postgres that is away: dropping `near` tells the relay.
                let Ok(far) = TcpStream::connect(("127.0.0.1", target_port)) else { continue };
                own.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let number = counter.fetch_add(1, Ordering::SeqCst);
                for (from, to) in [(near, far), (far_back, near_back)] {
                    let below = below.clone();
                    let silent = move || number < below.load(Ordering::SeqCst);
                    std::thread::spawn(move || copy(from, to, silent));
                }
            }
        });
        Proxy { port, links, opened, silent_below }
    }

    /// Swallows what goes over the connections that are open by now, in both directions, and keeps
    /// them open.
    pub(super) fn silence(&self) {
        self.silent_below.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Cuts every connection, whatever is on its way; says how many.
    pub(super) fn cut(&self) -> usize {
        let links = std::mem::take(&mut *self.links.lock().unwrap());
        // One that has ended by itself cannot be cut.
        links.iter().filter(|link| link.shutdown(Shutdown::Both).is_ok()).count() / 2
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, silent: impl Fn() -> bool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if silent() {
            continue;
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

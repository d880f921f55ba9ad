//! A TCP proxy whose connections can be cut: the network between relay and Postgres.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Forwards from a port of its own for as long as the test process lives.
pub(super) struct Proxy {
    pub(super) port: u16,
    links: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(super) fn start(target_port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let links = Arc::new(Mutex::new(Vec::new()));
        let own = links.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A Postgres that is away: dropping `near` tells the relay.
                let Ok(far) = TcpStream::connect(("127.0.0.1", target_port)) else { continue };
                own.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || copy(near, far));
                std::thread::spawn(move || copy(far_back, near_back));
            }
        });
        Proxy { port, links }
    }

    /// Cuts every connection, whatever is on its way; says how many.
    pub(super) fn cut(&self) -> usize {
        let links = std::mem::take(&mut *self.links.lock().unwrap());
        // One that has ended by itself cannot be cut.
        links.iter().filter(|link| link.shutdown(Shutdown::Both).is_ok()).count() / 2
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

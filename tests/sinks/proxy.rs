//! The network between a sink and its broker: it can stall, lose answers, and be cut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Forwards for as long as the test process lives.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stalled: bool,
    answers_lost: bool,
    /// Clients that have not gone.
    open: usize,
    links: Vec<TcpStream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl Proxy {
    /// In front of a port of this machine.
    pub(crate) fn start(target: u16) -> Proxy {
        let port = walrelay_harness::free_port().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A broker that is away: dropping `near` tells the client.
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                own.join(near, far);
            }
        });
        Proxy { port, shared }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Nothing passes in either direction.
    pub(crate) fn stall(&self) {
        self.state().stalled = true;
    }

    /// Everything passes again.
    pub(crate) fn go_on(&self) {
        self.state().stalled = false;
        self.shared.changed.notify_all();
    }

    /// The broker hears the client, and not the other way round, until the next cut.
    pub(crate) fn lose_answers(&self) {
        self.state().answers_lost = true;
    }

    /// Ends all connections; the next ones are sound.
    pub(crate) fn cut(&self) {
        let mut state = self.state();
        for link in state.links.drain(..) {
            drop(link.shutdown(Shutdown::Both));
        }
        state.answers_lost = false;
    }

    /// How many clients are connected.
    pub(crate) fn open(&self) -> usize {
        self.state().open
    }
}

impl Shared {
    fn join(self: &Arc<Shared>, near: TcpStream, far: TcpStream) {
        drop(near.set_nodelay(true).and(far.set_nodelay(true)));
        let clones = [near.try_clone(), far.try_clone(), near.try_clone(), far.try_clone()];
        let [near_up, far_up, near_kept, far_kept] = clones.map(Result::unwrap);
        let mut state = self.state.lock().unwrap();
        state.open += 1;
        state.links.extend([near_kept, far_kept]);
        drop(state);
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || {
            up.copy(near_up, far_up, Way::Up);
            up.state.lock().unwrap().open -= 1;
        });
        std::thread::spawn(move || down.copy(far, near, Way::Down));
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, way: Way) {
        let mut part = vec![0; 64 * 1024];
        while let Ok(read) = from.read(&mut part) {
            let state = self.state.lock().unwrap();
            let state = self.changed.wait_while(state, |state| state.stalled).unwrap();
            let lost = state.answers_lost && way == Way::Down;
            drop(state);
            if read == 0 || (!lost && to.write_all(&part[..read]).is_err()) {
                break;
            }
        }
        drop(from.shutdown(Shutdown::Both));
        drop(to.shutdown(Shutdown::Both));
    }
}

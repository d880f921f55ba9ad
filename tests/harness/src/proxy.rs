//! The network between the relay and a service: it can stall, lose what it carries, and be cut.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::kit::lock;
use crate::{HarnessError, Result};

/// Looks at what goes one way, before it goes on.
pub(crate) type Look = Box<dyn FnMut(&[u8]) + Send>;

/// Forwards for as long as the test process lives.
#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
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
    /// Connections with a lower number carry nothing any more.
    silent_below: usize,
    opened: usize,
    open: usize,
    links: Vec<TcpStream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// Which of two servers of Postgres a connection goes to.
#[derive(Clone, Copy, Debug)]
pub struct SplitTargets {
    pub sql: u16,
    pub replication: u16,
}

impl Proxy {
    pub fn start(target: u16) -> Result<Proxy> {
        Proxy::start_watched(target, empty_looks)
    }

    /// The same with two looks for each connection: at what the client sends, and at the answers.
    pub(crate) fn start_watched(
        target: u16,
        looks: impl Fn() -> [Look; 2] + Send + 'static,
    ) -> Result<Proxy> {
        Proxy::listen(move |_| TcpStream::connect(("127.0.0.1", target)), looks)
    }

    /// A proxy before two servers of Postgres, which are asked for at each connection: an address that
    /// moves while connections are opened.
    pub fn start_split(targets: impl Fn() -> SplitTargets + Send + 'static) -> Result<Proxy> {
        let dial = move |near: &mut TcpStream| {
            let packet = startup_packet(near)?;
            let SplitTargets { sql, replication } = targets();
            let replicates = packet.windows(12).any(|part| part == b"replication\0");
            let target = if replicates { replication } else { sql };
            let mut far = TcpStream::connect(("127.0.0.1", target))?;
            far.write_all(&packet)?;
            Ok::<_, io::Error>(far)
        };
        Proxy::listen(dial, empty_looks)
    }

    fn listen(
        dial: impl Fn(&mut TcpStream) -> io::Result<TcpStream> + Send + 'static,
        looks: impl Fn() -> [Look; 2] + Send + 'static,
    ) -> Result<Proxy> {
        let port = crate::free_port()?;
        let at = ("127.0.0.1", port);
        let listener = TcpListener::bind(at).map_err(HarnessError::io("listen"))?;
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for mut near in listener.incoming().flatten() {
                // A server that is away: dropping `near` tells the client.
                let Ok(far) = dial(&mut near) else { continue };
                drop(own.join(near, far, looks()));
            }
        });
        Ok(Proxy { port, shared })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    pub fn stall(&self) {
        self.state().stalled = true;
    }

    pub fn go_on(&self) {
        self.state().stalled = false;
        self.shared.changed.notify_all();
    }

    /// The broker hears the client, and not the other way round, until the next cut.
    pub fn lose_answers(&self) {
        self.state().answers_lost = true;
    }

    /// Swallows what goes over the connections that are open by now, in both directions, and keeps
    /// them open.
    pub fn silence(&self) {
        let mut state = self.state();
        state.silent_below = state.opened;
    }

    /// Ends all connections, whatever is on its way, and says how many; the next ones are sound.
    pub fn cut(&self) -> usize {
        let mut state = self.state();
        state.answers_lost = false;
        // One that has ended by itself cannot be cut.
        let cut = |link: TcpStream| link.shutdown(Shutdown::Both).is_ok();
        state.links.drain(..).map(cut).filter(|cut| *cut).count() / 2
    }

    pub fn open(&self) -> usize {
        self.state().open
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn join(
        self: &Arc<Shared>,
        near: TcpStream,
        far: TcpStream,
        [look_up, look_down]: [Look; 2],
    ) -> io::Result<()> {
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (near_up, far_up) = (near.try_clone()?, far.try_clone()?);
        let kept = [near.try_clone()?, far.try_clone()?];
        let mut state = self.lock();
        let number = state.opened;
        state.opened += 1;
        state.open += 1;
        // Those that have ended are of no use.
        state.links.retain(|link| link.peer_addr().is_ok());
        state.links.extend(kept);
        drop(state);
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || {
            up.copy(near_up, far_up, number, Way::Up, look_up);
            up.lock().open -= 1;
        });
        std::thread::spawn(move || down.copy(far, near, number, Way::Down, look_down));
        Ok(())
    }

    fn copy(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        number: usize,
        way: Way,
        mut look: Look,
    ) {
        let mut part = vec![0; 64 * 1024];
        while let Ok(read) = from.read(&mut part) {
            let stalled = self.changed.wait_while(self.lock(), |state| state.stalled);
            let state = stalled.unwrap_or_else(PoisonError::into_inner);
            let lost = number < state.silent_below || state.answers_lost && way == Way::Down;
            drop(state);
            look(&part[..read]);
            if read == 0 || (!lost && to.write_all(&part[..read]).is_err()) {
                break;
            }
        }
        drop(from.shutdown(Shutdown::Both));
        drop(to.shutdown(Shutdown::Both));
    }
}

fn empty_looks() -> [Look; 2] {
    [Box::new(|_: &[u8]| {}), Box::new(|_: &[u8]| {})]
}

/// The first packet of a client of Postgres, after its request for TLS was refused.
fn startup_packet(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    loop {
        let mut packet = vec![0; 8];
        client.read_exact(&mut packet)?;
        if packet == TLS_REQUEST {
            client.write_all(b"N")?;
            continue;
        }
        let length = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]) as usize;
        packet.resize(length.clamp(8, 64 * 1024), 0);
        client.read_exact(&mut packet[8..])?;
        return Ok(packet);
    }
}

//! Clients that say nothing, or not enough, and those who come after them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use axum::extract::ConnectInfo;
use tokio::sync::Semaphore;

use super::super::bounded::AdminClient;
use super::super::*;
use super::{letters, view};

const HOUR: Duration = Duration::from_secs(3600);
const PROBE: &str = "GET /livez HTTP/1.1\r\nHost: relay\r\n\r\n";
/// More than sockets hold.
const LARGE_BYTES: usize = 32 << 20;

/// A server with two paths whose answers wait until they are let go; clients of one of them count as let in.
struct HeldServer {
    admin: Admin,
    held: Arc<HeldRequests>,
    has_entered: Receiver<()>,
}

struct HeldRequests {
    /// How many there are now, and how many there were at most.
    counts: Mutex<(usize, usize)>,
    entered: Sender<()>,
    let_go: Semaphore,
}

impl HeldRequests {
    async fn hold(&self) {
        {
            let mut counts = self.counts.lock().unwrap();
            counts.0 += 1;
            counts.1 = counts.1.max(counts.0);
        }
        self.entered.send(()).unwrap();
        self.let_go.acquire().await.unwrap().forget();
        self.counts.lock().unwrap().0 -= 1;
    }
}

impl HeldServer {
    fn start(connections_max: u32, head_max: Duration, age_max: Duration) -> HeldServer {
        let (_recorder, view) = view(None);
        let observer = Arc::new(Observer::new(view, false));
        let (entered, has_entered) = channel();
        let (counts, let_go) = (Mutex::default(), Semaphore::new(0));
        let held = Arc::new(HeldRequests { counts, entered, let_go });
        let (first, second) = (Arc::clone(&held), Arc::clone(&held));
        let hold = async move || first.hold().await;
        let hold_let_in = async move |ConnectInfo(client): ConnectInfo<AdminClient>| {
            client.let_in();
            second.hold().await;
        };
        let large = async || "x".repeat(LARGE_BYTES);
        let router = router(&observer)
            .route("/held", get(hold))
            .route("/held/let-in", get(hold_let_in))
            .route("/large", get(large));
        let bounds = Bounds { connections_max, head_max, age_max };
        let listen = "127.0.0.1:0".parse().unwrap();
        let admin = Admin::start_within(bounds, listen, &[], router, observer, letters()).unwrap();
        HeldServer { admin, held, has_entered }
    }

    /// A client that has sent this.
    fn client(&self, sent: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.admin.addr).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        client
    }

    fn asking(&self, path: &str) -> TcpStream {
        self.client(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn let_one_go(&self) {
        self.held.let_go.add_permits(1);
    }
}

/// Reads all that a client is sent until its connection ends; one that is cut may miss its end.
fn received(mut client: TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = client.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the connection did not end");
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_probe_is_answered_once_as_many_idle_clients_as_may_be_have_timed_out() {
    let short = Duration::from_secs(1);
    let silent: fn(&HeldServer) -> TcpStream = |server| server.client("");
    let in_the_midst: fn(&HeldServer) -> TcpStream =
        |server| server.client("GET /livez HTTP/1.1\r\n");
    let reading_slowly: fn(&HeldServer) -> TcpStream = |server| {
        let mut client = server.asking("/large");
        client.read_exact(&mut [0; 12]).unwrap();
        client
    };
    for (idle, head_max, age_max) in
        [(silent, short, HOUR), (in_the_midst, short, HOUR), (reading_slowly, HOUR, short)]
    {
        // GIVEN as many idle clients as may be
        let server = HeldServer::start(5, head_max, age_max);
        let clients: Vec<TcpStream> = (0..5).map(|_| idle(&server)).collect();
        // WHEN it is probed THEN it answers, however often
        for _ in 0..9 {
            let answer = received(server.client(PROBE));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        // THEN one of the others was cut, at least: those that began later may still get their answer
        let has_all = |client: TcpStream| received(client).len() > LARGE_BYTES;
        assert_ne!(clients.into_iter().map(has_all).filter(|has_all| *has_all).count(), 5);
    }
}

#[test]
fn no_more_clients_are_served_at_once_than_may_be() {
    let server = HeldServer::start(2, HOUR, HOUR);
    let clients: Vec<TcpStream> = (0..9).map(|_| server.asking("/held")).collect();
    // GIVEN two that are held
    (0..2).for_each(|_| server.has_entered.recv().unwrap());
    // WHEN one after the other gets its answer THEN another takes its place, and no more
    for client in clients {
        server.let_one_go();
        assert!(received(client).starts_with("HTTP/1.1 200"));
    }
    let most = server.held.counts.lock().unwrap().1;
    assert_eq!(most, 2);
}

#[test]
fn a_client_that_sends_no_request_is_cut_before_one_that_has_asked() {
    let server = HeldServer::start(2, Duration::from_millis(500), HOUR);
    let asking = server.asking("/held");
    assert_eq!(received(server.client("")), "");
    server.let_one_go();
    assert!(received(asking).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_client_that_was_let_in_may_stay_longer() {
    let server = HeldServer::start(2, HOUR, Duration::from_secs(1));
    let let_in = server.asking("/held/let-in");
    // GIVEN another one that came later, and has grown too old
    assert_eq!(received(server.asking("/held")), "");
    server.let_one_go();
    assert!(received(let_in).starts_with("HTTP/1.1 200"));
}

//! Clients that say nothing, or not enough, and those who come after them.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::super::*;
use super::{exchange, letters, view};

fn on_runtime<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

async fn bounded_listener(
    connections_max: usize,
    head_max: Duration,
    age_max: Duration,
) -> (Bounded, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (Bounded::new(listener, Bounds { connections_max, head_max, age_max }), addr)
}

#[test]
fn a_client_that_sends_no_request_is_cut_before_one_that_has_asked() {
    use axum::serve::Listener as _;
    use tokio::io::AsyncReadExt as _;
    on_runtime(async {
        // GIVEN one that has asked, and one that sends nothing
        let (head, age) = (Duration::from_millis(20), Duration::from_secs(3600));
        let (mut listener, addr) = bounded_listener(2, head, age).await;
        let _asking = tokio::net::TcpStream::connect(addr).await.unwrap();
        let (mut asking, from) = listener.accept().await;
        let _under_way = asking.client(from).asks();
        let _silent = tokio::net::TcpStream::connect(addr).await.unwrap();
        let (mut silent, _) = listener.accept().await;
        // THEN the silent one is cut, and the other is not
        let error = silent.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        let waits = tokio::time::timeout(head, asking.read_u8()).await;
        assert!(waits.is_err(), "{waits:?}");
    });
}

#[test]
fn of_those_that_are_open_the_one_that_has_been_idle_longest_gives_way() {
    use axum::serve::Listener as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    on_runtime(async {
        // GIVEN as many connections as there may be: the first is under way, the second follows
        // events, the third has shown the token, the fourth has just sent something, the fifth has not
        let hour = Duration::from_secs(3600);
        let (mut listener, addr) = bounded_listener(5, hour, hour).await;
        let mut far = Vec::new();
        let (mut near, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            far.push(tokio::net::TcpStream::connect(addr).await.unwrap());
            let (connection, from) = listener.accept().await;
            clients.push(connection.client(from));
            near.push(connection);
        }
        let _under_way = clients[0].asks();
        clients[1].follows();
        clients[2].let_in();
        far[3].write_all(b"x").await.unwrap();
        assert_eq!(near[3].read_u8().await.unwrap(), b'x');
        let reading = near.into_iter().map(|mut connection| {
            tokio::spawn(async move { connection.read_u8().await.unwrap_err().kind() })
        });
        let mut reading: Vec<_> = reading.collect();
        // WHEN others come, and ask, THEN they are let in, each for one of these
        let mut others = Vec::new();
        for _ in 0..5 {
            far.push(tokio::net::TcpStream::connect(addr).await.unwrap());
            let (connection, from) = listener.accept().await;
            let asking = connection.client(from).asks();
            others.push((connection, asking));
            let closed = reading.pop().unwrap().await.unwrap();
            assert_eq!(closed, std::io::ErrorKind::UnexpectedEof);
            assert!(reading.iter().all(|task| !task.is_finished()));
        }
    });
}

#[test]
fn who_was_let_in_or_follows_may_stay_longer() {
    for may_stay in [AdminClient::let_in, AdminClient::follows] {
        on_runtime(stays_past_its_age(may_stay));
    }
}

async fn stays_past_its_age(may_stay: fn(&AdminClient)) {
    use axum::serve::Listener as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut listener, addr) = bounded_listener(1, Duration::ZERO, Duration::ZERO).await;
    let mut far = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (mut near, from) = listener.accept().await;
    let client = near.client(from);
    assert_eq!(client.addr, far.local_addr().unwrap());
    let _under_way = client.asks();
    // GIVEN a connection past its age WHEN its client may stay THEN it is not closed
    may_stay(&client);
    let waits = tokio::time::timeout(Duration::from_millis(100), near.read_u8()).await;
    assert!(waits.is_err(), "{waits:?}");
    far.write_all(b"x").await.unwrap();
    assert_eq!(near.read_u8().await.unwrap(), b'x');
}

#[test]
fn a_probe_does_not_wait_behind_idle_clients() {
    const LARGE_BYTES: usize = 64 << 20;
    let (_recorder, view) = view(None);
    // GIVEN a server on which no connection grows too old
    let hour = Duration::from_secs(3600);
    let bounds = Bounds { head_max: hour, age_max: hour, ..Bounds::default() };
    let (observer, observing) = observer(view);
    let large = axum::routing::get(async || "x".repeat(LARGE_BYTES));
    let router = router(&observer).route("/large", large);
    let listen = "127.0.0.1:0".parse().unwrap();
    let admin = Admin::start_within(bounds, listen, &[], router, observing, letters()).unwrap();
    // GIVEN as many idle clients as it serves: silent, in the midst of a request, with an answer
    // behind them, and reading a large one slowly
    let mut idle = Vec::new();
    for number in 0..bounds.connections_max {
        let mut client = TcpStream::connect(admin.addr).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sent = match number % 4 {
            0 => "",
            1 => "GET /livez HTTP/1.1\r\nHost: re",
            2 => "GET /livez HTTP/1.1\r\nHost: relay\r\nConnection: keep-alive\r\n\r\n",
            _ => "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        client.write_all(sent.as_bytes()).unwrap();
        if number % 4 >= 2 {
            client.read_exact(&mut [0; 12]).unwrap();
        }
        idle.push(client);
    }
    // WHEN it is probed THEN it answers, however often
    for _ in 0..2 * bounds.connections_max {
        let answer = exchange(admin.addr, "GET /livez HTTP/1.1\r\nHost: relay\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

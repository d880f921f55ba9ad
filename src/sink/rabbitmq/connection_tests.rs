use std::net::TcpListener as StdListener;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::base::secret::Secret;

fn settings(ports: &[u16]) -> RabbitSettings {
    let host = |port: &u16| RabbitHost { name: "127.0.0.1".to_owned(), port: *port };
    RabbitSettings {
        hosts: ports.iter().map(host).collect(),
        vhost: "/".to_owned(),
        login: RabbitLogin::Plain("u".to_owned(), Secret::new("p")),
        heartbeat: Duration::from_secs(10),
        connect_timeout: Duration::from_millis(300),
        ..RabbitSettings::default()
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

/// A port that was free just now.
fn closed_port() -> u16 {
    StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn hosts_are_tried_in_order_from_the_one_that_is_next() {
    let ports = [closed_port(), closed_port(), closed_port()];
    let settings = settings(&ports);
    for from in [0, 1, 2, 3, 7] {
        let loss = run(AmqpConnection::open(&settings, from)).err().unwrap();
        let order: Vec<_> = (0..3).map(|step| ports[(from + step) % 3]).collect();
        let places: Vec<_> =
            order.iter().map(|port| loss.text.find(&format!("127.0.0.1:{port}: "))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{order:?} {loss:?}");
        assert!(!loss.is_final());
    }
}

#[test]
fn a_server_that_is_silent_or_hangs_up_does_not_hold_us() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = settings(&[listener.local_addr().unwrap().port()]);
        // GIVEN a listener that never answers
        let loss = AmqpConnection::open(&settings, 0).await.err().unwrap();
        assert!(loss.text.ends_with("no answer within 0.3 s"), "{loss:?}");
        // GIVEN one that hangs up, or answers as TLS does
        for answer in [&b""[..], b"\x15\x03\x01\x00\x02\x02\x46"] {
            let serve = async {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let _header = stream.read(&mut [0; 8]).await;
                    drop(stream.write_all(answer).await);
                }
            };
            let loss = tokio::select! {
                opened = AmqpConnection::open(&settings, 0) => opened.err().unwrap(),
                () = serve => unreachable!(),
            };
            let mend = loss.cause.clone().unwrap().mend;
            assert!(mend.contains("write amqps://"), "{loss:?}");
        }
    });
}

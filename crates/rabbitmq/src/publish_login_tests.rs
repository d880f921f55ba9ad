//! Hosts that refuse, hang up, or never answer.

use std::net::TcpListener as StdListener;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::connection::AmqpConnection;
use crate::uri::RabbitHost;
use walrelay_base::secret::Secret;

/// `connection.start` and `connection.tune`, the latter with frames of 4 KiB.
const START: &[u8] =
    b"\x01\0\0\0\0\0\x1c\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US\xce";
const TUNE: &[u8] = b"\x01\0\0\0\0\0\x0c\0\x0a\0\x1e\x07\xff\0\0\x10\0\0\x3c\xce";
/// A close of the connection with code 403.
const REFUSED: &[u8] = b"\x01\0\0\0\0\0\x0d\0\x0a\0\x32\x01\x93\x02no\0\0\0\0\xce";

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
        let loss = run(connect(&settings, from)).err().unwrap();
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
        let loss = connect(&settings, 0).await.err().unwrap();
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
                opened = connect(&settings, 0) => opened.err().unwrap(),
                () = serve => unreachable!(),
            };
            let mend = loss.cause.clone().unwrap().mend;
            assert!(mend.contains("write amqps://"), "{loss:?}");
        }
    });
}

#[test]
fn small_frames_are_final_only_where_no_other_host_may_have_larger_ones() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let small = listener.local_addr().unwrap().port();
        // GIVEN a broker whose frames have 4 KiB, alone, or with another one that is restarting
        for (ports, is_final) in [(vec![small], true), (vec![small, closed_port()], false)] {
            let settings = settings(&ports);
            let serve = async {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let _header = stream.read(&mut [0; 8]).await;
                    drop(stream.write_all(START).await);
                    let _start_ok = stream.read(&mut [0; 4096]).await;
                    drop(stream.write_all(TUNE).await);
                }
            };
            let loss = tokio::select! {
                opened = connect(&settings, 0) => opened.err().unwrap(),
                () = serve => unreachable!(),
            };
            assert!(loss.text.contains("its frames have 4096 bytes at most"), "{loss:?}");
            assert_eq!(loss.is_final(), is_final, "{loss:?}");
        }
    });
}

#[test]
fn a_login_that_is_refused_with_a_reason_is_not_repeated() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = settings(&[listener.local_addr().unwrap().port()]);
        let mut logins = 0;
        let serve = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                logins += 1;
                for answer in [START, REFUSED] {
                    let _request = stream.read(&mut [0; 4096]).await;
                    drop(stream.write_all(answer).await);
                }
                let _close_ok = stream.read(&mut [0; 4096]).await;
            }
        };
        let loss = tokio::select! {
            opened = AmqpConnection::open(&settings) => opened.err().unwrap(),
            () = serve => unreachable!(),
        };
        assert_eq!((loss.code, logins), (Some(403), 1), "{loss:?}");
    });
}

#[test]
fn a_login_by_certificate_that_is_closed_without_a_reason_has_the_plugin_in_its_help() {
    let settings = RabbitSettings {
        is_encrypted: true,
        login: RabbitLogin::External,
        ..RabbitSettings::default()
    };
    let enable = "rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl";
    // GIVEN a broker that closes the connection over the mechanism, with a reason or without
    let unknown = ConnectionLoss::refused(COMMAND_INVALID, "unknown authentication mechanism");
    for (loss, is_final) in [(unknown, true), (ConnectionLoss::of("hung up"), false)] {
        let cause = likely_cause(&settings, loss).cause.unwrap();
        assert!(cause.mend.contains(enable) && cause.is_final == is_final, "{cause:?}");
    }
    // THEN a cause that is known is kept
    let refused = ConnectionLoss::of("alert").caused_by("sink.tls-refused", "another", true);
    assert_eq!(likely_cause(&settings, refused.clone()), refused);
}

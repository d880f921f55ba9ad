//! Both directions of a connection, and each way in which it ends. The broker is a TLS server in the
//! same process; certificates are those of an `openssl` run.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::server;

use super::*;
use crate::base::testing::{self_signed, tls_acceptor};
use crate::sink::rabbitmq::multiplexer::Multiplexer;

const LIMIT: Duration = Duration::from_secs(20);

/// A self-signed certificate for `mq.example` and its key.
fn folder() -> &'static PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| self_signed("mq.example"))
}

fn settings() -> RabbitTls {
    RabbitTls { ca_file: Some(folder().join("own.crt")), ..RabbitTls::default() }
}

/// A client's socket, its multiplexer, and the server's side of it.
async fn connected() -> (TcpStream, Multiplexer, server::TlsStream<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        tls_acceptor(folder()).accept(stream).await.unwrap()
    };
    let dial = async {
        let stream = TcpStream::connect(address).await.unwrap();
        Multiplexer::over(connect(stream, "mq.example", &settings()).await.unwrap()).unwrap()
    };
    let ((plain, multiplexer), server) = tokio::join!(dial, accept);
    (plain, multiplexer, server)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, test).await.expect("it hangs") });
}

async fn task_has_ended(multiplexer: &Multiplexer) {
    while !multiplexer.task.is_finished() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn bytes_pass_in_both_directions_and_larger_than_any_buffer() {
    run(async {
        let (mut plain, _multiplexer, mut server) = connected().await;
        // A hundred frames of a body.
        let payload: Vec<u8> = (0..30_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let frame = [b"\x03\x00\x05\x00\x00\x75\x30", &payload[..], b"\xCE"].concat();
        let sent = frame.repeat(100);
        let copy = sent.clone();
        let echo = tokio::spawn(async move {
            let mut got = vec![0; copy.len()];
            server.read_exact(&mut got).await.unwrap();
            server.write_all(&got).await.unwrap();
            server.flush().await.unwrap();
            server
        });
        plain.write_all(&sent).await.unwrap();
        let mut back = vec![0; sent.len()];
        plain.read_exact(&mut back).await.unwrap();
        assert!(back == sent);
        drop(echo.await.unwrap());
    });
}

#[test]
fn the_end_of_either_side_is_the_end_of_both() {
    run(async {
        // WHEN the client closes THEN the server sees an orderly end, and the task goes
        let (plain, multiplexer, mut server) = connected().await;
        drop(plain);
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
        drop(server);
        task_has_ended(&multiplexer).await;

        // WHEN the server says goodbye THEN the client sees an end
        let (mut plain, multiplexer, mut server) = connected().await;
        server.shutdown().await.unwrap();
        assert_eq!(plain.read(&mut [0; 8]).await.unwrap(), 0);
        drop((plain, server));
        task_has_ended(&multiplexer).await;
        assert_eq!(multiplexer.tls_failure(), None);

        // WHEN the server is gone without a word THEN the client sees an end at once
        let (mut plain, multiplexer, server) = connected().await;
        let (tcp, _) = server.into_inner();
        drop(tcp);
        assert!(!matches!(plain.read(&mut [0; 8]).await, Ok(1..)));
        task_has_ended(&multiplexer).await;
    });
}

#[test]
fn a_dropped_connection_ends_the_task_though_nobody_closes() {
    run(async {
        let (plain, multiplexer, mut server) = connected().await;
        let task = multiplexer.task.clone();
        drop(multiplexer);
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!matches!(server.read(&mut [0; 8]).await, Ok(1..)));
        drop(plain);
    });
}

#[test]
fn a_peer_that_speaks_no_tls_is_told_as_that() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"AMQP\0\0\x09\x01").await.unwrap();
            drop(stream.read(&mut [0; 1024]).await);
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let error = connect(stream, "mq.example", &settings()).await.unwrap_err();
        let failure = explain(&error).unwrap();
        assert_eq!(failure.text, "the server does not speak TLS on this port");
        assert_eq!(failure.cause.unwrap().code, "sink.no-tls");
    });
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_key() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let absent = RabbitTls { ca_file: Some("/absent.pem".into()), ..RabbitTls::default() };
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let error = connect(stream, "mq.example", &absent).await.unwrap_err();
        let failure = explain(&error).unwrap();
        assert!(failure.text.starts_with("sink.rabbitmq.ca_file /absent.pem: "), "{error}");
        assert_eq!(failure.cause.unwrap().code, "sink.tls-settings");
    });
}

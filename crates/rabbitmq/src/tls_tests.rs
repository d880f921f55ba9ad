//! Tests of the messages of a failed handshake.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;
use walrelay_base::testing::self_signed;

const LIMIT: Duration = Duration::from_secs(20);

/// A self-signed certificate for `mq.example` and its key.
fn folder() -> &'static PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| self_signed("mq.example"))
}

fn settings() -> RabbitTls {
    RabbitTls { ca_file: Some(folder().join("own.crt")), ..RabbitTls::default() }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, test).await.expect("it hangs") });
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

//! Servers that a real Postgres will not play: silent, stopping, lying.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use walrelay::source::connect::{ConnectCause, ConnectError, ConnectErrorKind, open};
use walrelay::source::conninfo;
use walrelay::source::settings::ConnInfo;
use walrelay::source::sql;

fn message(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(payload.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn auth(code: u32, data: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes()[..], data].concat())
}

/// Answers each packet of the client with the next of `answers`,
/// then stays silent; for every connection.
async fn server(answers: Vec<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            for answer in &answers {
                if talk(&mut socket, answer).await.is_none() {
                    break;
                }
            }
            silent.push(socket);
        }
    });
    port
}

async fn talk(socket: &mut TcpStream, answer: &[u8]) -> Option<()> {
    let mut buf = [0; 4096];
    (socket.read(&mut buf).await.ok()? > 0).then_some(())?;
    socket.write_all(answer).await.ok()
}

fn info(port: u16, parameters: &str) -> ConnInfo {
    let text = format!("host=127.0.0.1 port={port} user=u password=canary {parameters}");
    let mut info = conninfo::parse(&text, &|_| None).unwrap();
    info.connect_timeout = Duration::from_millis(300);
    info
}

async fn verdict(answers: Vec<Vec<u8>>, parameters: &str) -> ConnectError {
    let port = server(answers).await;
    let error = open(&info(port, parameters)).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"));
    error
}

#[tokio::test]
async fn a_silent_server_costs_one_timeout_on_both_sides() {
    for mode in ["sslmode=disable", "sslmode=require"] {
        let error = verdict(Vec::new(), mode).await;
        assert!(matches!(error.cause, ConnectCause::Timeout(_)), "{error}");
        assert_eq!(error.kind(), ConnectErrorKind::Retry);
    }
    let port = server(Vec::new()).await;
    let error = sql::connect(&info(port, "sslmode=disable")).await.unwrap_err();
    assert!(matches!(error.cause, ConnectCause::Timeout(_)), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_used_or_refused_as_sslmode_says() {
    let error = verdict(vec![b"N".to_vec()], "sslmode=require").await;
    assert!(matches!(error.cause, ConnectCause::NoTls), "{error}");
    assert_eq!(error.kind(), ConnectErrorKind::Fatal);
    let starting = message(b'E', b"SFATAL\0C57P03\0Mthe database system is starting up\0\0");
    let error = verdict(vec![b"N".to_vec(), starting.clone()], "sslmode=prefer").await;
    assert_eq!((error.sqlstate(), error.kind()), (Some("57P03"), ConnectErrorKind::Stopping));
    // A refusal may come instead of the TLS answer.
    let error = verdict(vec![starting], "sslmode=require").await;
    assert_eq!(error.kind(), ConnectErrorKind::Stopping);
    let error = verdict(vec![b"H".to_vec()], "sslmode=require").await;
    assert!(matches!(error.cause, ConnectCause::Protocol(_)), "{error}");
}

#[tokio::test]
async fn what_is_injected_in_clear_before_tls_breaks_the_handshake() {
    let injected = [b"S".to_vec(), auth(0, b""), message(b'Z', b"I")].concat();
    let error = verdict(vec![injected], "sslmode=require").await;
    assert!(matches!(error.cause, ConnectCause::Tls(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_prove_itself_in_scram_is_refused() {
    let offer = auth(10, b"SCRAM-SHA-256\0\0");
    let ok = [auth(0, b""), message(b'Z', b"I")].concat();
    // It skips its own proof.
    let error = verdict(vec![offer.clone(), ok], "sslmode=disable").await;
    assert!(matches!(error.cause, ConnectCause::Login(_)), "{error}");
    // It does not continue our nonce.
    let error =
        verdict(vec![offer.clone(), auth(11, b"r=other,s=AAAA,i=4096")], "sslmode=disable").await;
    assert!(matches!(error.cause, ConnectCause::Login(_)), "{error}");
    // It asks for an absurd amount of work.
    let error = verdict(vec![offer, auth(11, b"r=x,s=AAAA,i=4000000000")], "sslmode=disable").await;
    assert!(error.to_string().contains("too many SCRAM iterations"), "{error}");
    // It offers only what we do not have.
    let error = verdict(vec![auth(7, b"")], "sslmode=disable").await;
    assert!(error.to_string().contains("method 7"), "{error}");
}

/// An address of this machine that is none of loopback; none on a machine without a network.
/// Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.254:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// Refuses TLS, asks by `request`, and keeps whatever it hears.
async fn asking(address: IpAddr, request: Vec<u8>) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = socket.read(&mut buf).await {
                ear.lock().unwrap().extend_from_slice(&buf[..n]);
                let answer: &[u8] = if n == 8 { b"N" } else { &request };
                socket.write_all(answer).await.unwrap();
            }
        }
    });
    (port, heard)
}

/// The messages that such a server gets when both sides log in, and their errors.
async fn asked(address: IpAddr, request: &[u8], parameters: &str) -> (String, Vec<ConnectError>) {
    let (port, heard) = asking(address, request.to_vec()).await;
    let info = info(port, &format!("host={address} {parameters}"));
    let errors = vec![open(&info).await.unwrap_err(), sql::connect(&info).await.err().unwrap()];
    let heard = String::from_utf8_lossy(&heard.lock().unwrap()).into_owned();
    (heard, errors)
}

#[tokio::test]
async fn a_password_goes_in_clear_to_this_machine_only() {
    let Some(address) = own_address() else { return };
    for (request, hash) in [(auth(3, b""), false), (auth(5, b"salt"), true)] {
        let sent = |heard: &str| heard.contains(if hash { "md5" } else { "canary" });
        // Neither by default, nor because TLS was declined: that says nothing of the password.
        for parameters in
            ["", "sslmode=disable", "require_auth=!none", "require_auth=scram-sha-256"]
        {
            let (heard, errors) = asked(address, &request, parameters).await;
            assert!(!sent(&heard), "{parameters}: {heard:?}");
            for error in errors {
                assert_eq!(error.kind(), ConnectErrorKind::Fatal, "{error}");
                let fault = error.fault(&info(1, ""), "s", "p");
                let own_rule = parameters.contains("scram");
                let code =
                    if own_rule { "source.require-auth" } else { "source.password-in-clear" };
                assert_eq!(fault.code, code, "{fault}");
                assert!(fault.mend.contains("require_auth="), "{fault}");
                assert!(!format!("{error:?} {fault:?}").contains("canary"));
            }
        }
        // THEN whoever says so, or stays on this machine, is obeyed
        let allowed = if hash { "require_auth=md5" } else { "require_auth=password" };
        assert!(sent(&asked(address, &request, allowed).await.0));
        assert!(sent(&asked([127, 0, 0, 9].into(), &request, "").await.0));
        let (heard, _) = asked([127, 0, 0, 9].into(), &request, "require_auth=scram-sha-256").await;
        assert!(!sent(&heard), "{heard:?}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_nothing_is_refused_where_it_must_ask() {
    let ready = [auth(0, b""), message(b'Z', b"I")].concat();
    for parameters in ["require_auth=scram-sha-256", "require_auth=!none"] {
        for error in asked([127, 0, 0, 1].into(), &ready, parameters).await.1 {
            assert_eq!(error.fault(&info(1, ""), "s", "p").code, "source.require-auth", "{error}");
        }
    }
}

#[tokio::test]
async fn an_absurd_length_is_refused_before_it_is_buffered() {
    let huge = [b"R".to_vec(), u32::MAX.to_be_bytes().to_vec()].concat();
    let large = [b"R".to_vec(), 500_000_000u32.to_be_bytes().to_vec()].concat();
    for answer in [huge, large] {
        let error = verdict(vec![answer], "sslmode=disable").await;
        assert!(matches!(error.cause, ConnectCause::Protocol(_)), "{error}");
    }
}

//! The transport against a scripted peer: nothing is
//! lost, nothing is queued in part, ends are reported.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;

use rustls::pki_types::ServerName;
use rustls::{ServerConnection, StreamOwned};

use super::*;
use crate::testing::{self_signed, tls_acceptor};
use crate::tls::{self, PemFile, RootsVerifier};

const SOON: Duration = Duration::from_secs(10);

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn read_all(transport: &mut Transport, buf_bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buf = vec![0; buf_bytes];
    loop {
        match transport.read(&mut buf) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(!transport.has_buffered(), "a silent read leaves nothing behind");
                assert!(transport.wait(SOON, false).unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn a_plain_stream_is_read_to_its_end() {
    let (near, mut far) = tcp_pair();
    let mut transport = Transport::new(near, None).unwrap();
    assert!(transport.is_loopback());
    transport.set_receive_buffer(64 * 1024).unwrap();
    assert_eq!(transport.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(!transport.wait(Duration::ZERO, false).unwrap());
    assert!(transport.wait(Duration::ZERO, true).unwrap());
    let sent = pattern(300_000);
    let writer = thread::spawn({
        let sent = sent.clone();
        move || far.write_all(&sent).unwrap()
    });
    assert_eq!(read_all(&mut transport, 4096), sent);
    writer.join().unwrap();
}

#[test]
fn a_full_socket_queues_whole_writes_up_to_the_bound() {
    // GIVEN a peer that does not read
    let (near, far) = UnixStream::pair().unwrap();
    let mut transport = Transport::new(near, None).unwrap();
    // WHEN the socket and the queue are full
    let chunk = pattern(1000);
    let mut taken = 0;
    let refused = loop {
        match transport.write(&chunk) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    // THEN the write is refused whole, and every accepted one arrives
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    assert!(transport.pending_write());
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        (&far).read_to_end(&mut all).unwrap();
        all
    });
    while transport.pending_write() {
        assert!(transport.wait(SOON, true).unwrap());
        transport.flush().unwrap();
    }
    transport.shutdown().unwrap();
    assert_eq!(reader.join().unwrap(), chunk.repeat(taken));
}

/// A TLS server on the far end, and the client session whose handshake is done.
fn tls_pair() -> (Transport, StreamOwned<ServerConnection, TcpStream>) {
    let (near, far) = tcp_pair();
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let folder = MADE.get_or_init(|| self_signed("h.example"));
    let server = Arc::clone(tls_acceptor(folder).config());
    let far = thread::spawn(move || {
        let mut far = StreamOwned::new(ServerConnection::new(server).unwrap(), far);
        far.conn.complete_io(&mut far.sock).unwrap();
        far
    });
    let authority = folder.join("own.crt");
    let roots = tls::roots(PemFile { parameter: "ca_file", path: Some(&authority) }).unwrap();
    let provider = tls::provider();
    let verifier = Arc::new(RootsVerifier::new(roots, true, &provider).unwrap());
    let config = tls::client_config(provider, verifier, None).unwrap();
    let name = ServerName::try_from("h.example").unwrap();
    let mut session = ClientConnection::new(config, name).unwrap();
    let mut near = near;
    while session.is_handshaking() {
        session.complete_io(&mut near).unwrap();
    }
    (Transport::new(near, Some(session)).unwrap(), far.join().unwrap())
}

#[test]
fn a_tls_stream_loses_nothing_whatever_the_buffer() {
    for buf_bytes in [1000, 16 * 1024, 256 * 1024] {
        let (mut transport, mut far) = tls_pair();
        let sent = pattern(1_000_000);
        let writer = thread::spawn({
            let sent = sent.clone();
            move || {
                far.write_all(&sent).unwrap();
                far.conn.send_close_notify();
                far.flush().unwrap();
            }
        });
        assert_eq!(read_all(&mut transport, buf_bytes), sent);
        writer.join().unwrap();
    }
}

#[test]
fn buffered_plaintext_is_announced_without_a_socket() {
    // GIVEN ten bytes in one record, of which four were read
    let (mut transport, mut far) = tls_pair();
    far.write_all(b"0123456789").unwrap();
    far.flush().unwrap();
    let mut buf = [0; 4];
    loop {
        match transport.read(&mut buf) {
            Ok(n) => break assert_eq!(n, 4),
            Err(_) => assert!(transport.wait(SOON, false).unwrap()),
        }
    }
    // THEN waiting returns at once and the rest is there
    assert!(transport.has_buffered());
    assert!(transport.wait(Duration::ZERO, false).unwrap());
    let mut rest = [0; 16];
    assert_eq!(transport.read(&mut rest).unwrap(), 6);
    assert_eq!(&rest[..6], b"456789");
    assert!(!transport.has_buffered());
}

#[test]
fn what_is_written_under_tls_arrives_and_a_torn_end_is_an_end() {
    let (mut transport, mut far) = tls_pair();
    transport.write(b"status").unwrap();
    transport.write(b" update").unwrap();
    assert!(!transport.pending_write());
    let mut got = [0; 13];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"status update");
    far.sock.shutdown(Shutdown::Both).unwrap();
    drop(far);
    assert!(read_all(&mut transport, 100).is_empty());
    drop(transport.shutdown());
}

#[test]
fn what_the_other_end_has_not_acknowledged_is_known() {
    // GIVEN a peer whose kernel takes no more, because it does not read
    let (near, mut far) = tcp_pair();
    let mut transport = Transport::new(near, None).unwrap();
    let chunk = pattern(60_000);
    let mut written = 0;
    while !transport.pending_write() {
        transport.write(&chunk).unwrap();
        written += chunk.len() as u64;
    }
    assert_eq!(transport.written_bytes(), written);
    assert!(transport.acknowledged_bytes() < written - transport.outgoing.len() as u64);
    // WHEN it reads all
    let reader = thread::spawn(move || {
        let mut all = vec![0; written as usize];
        far.read_exact(&mut all).unwrap();
        far
    });
    while transport.pending_write() {
        assert!(transport.wait(SOON, true).unwrap());
        transport.flush().unwrap();
    }
    let _far = reader.join().unwrap();
    // THEN all is acknowledged
    while transport.acknowledged_bytes() < written {
        thread::yield_now();
    }
    assert_eq!(transport.acknowledged_bytes(), written);
}

#[test]
fn a_unix_socket_has_everything_acknowledged() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut transport = Transport::new(near, None).unwrap();
    transport.write(b"update").unwrap();
    assert_eq!((transport.written_bytes(), transport.acknowledged_bytes()), (6, 6));
}

#[test]
fn a_part_is_written_where_the_socket_takes_no_more() {
    // GIVEN a peer that does not read
    let (near, mut far) = tcp_pair();
    let mut transport = Transport::new(near, None).unwrap();
    let sent = pattern(16_000_000);
    let mut at = transport.write_some(&sent).unwrap();
    while at < sent.len() {
        match transport.write_some(&sent[at..]).unwrap() {
            0 => break,
            count => at += count,
        }
    }
    // THEN the socket is full, and nothing waits elsewhere
    assert!(at < sent.len() && !transport.pending_write(), "{at} bytes");
    assert_eq!(transport.written_bytes(), at as u64);
    // WHEN it reads THEN the rest follows
    let reader = thread::spawn(move || {
        let mut all = vec![0; 16_000_000];
        far.read_exact(&mut all).unwrap();
        all
    });
    while at < sent.len() {
        assert!(transport.wait(SOON, true).unwrap());
        at += transport.write_some(&sent[at..]).unwrap();
    }
    assert!(reader.join().unwrap() == sent);
}

#[test]
fn a_read_under_tls_sends_nothing_of_what_waits() {
    let (mut transport, mut far) = tls_pair();
    // GIVEN a socket that is full, and a part that waits
    while !transport.pending_write() {
        transport.write_some(&pattern(PLAINTEXT_BYTES)).unwrap();
    }
    let written = transport.written_bytes();
    let sent = written - transport.outgoing.len() as u64;
    // WHEN the other end reads, and sends what is no record of this session
    far.sock.read_exact(&mut vec![0; sent as usize]).unwrap();
    far.sock.write_all(b"\x17\x03\x03\x00\x20").unwrap();
    far.sock.write_all(&[0; 32]).unwrap();
    let error = loop {
        match transport.read(&mut [0; 8]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(transport.wait(SOON, false).unwrap());
            }
            read => break read.unwrap_err(),
        }
    };
    // THEN the alert waits behind the part
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(transport.written_bytes() > written);
    assert_eq!(transport.written_bytes() - transport.outgoing.len() as u64, sent);
}

//! Answers that say alive, and all others.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;
use crate::base::runtime;

/// Asks a server that gives this one answer.
fn asked(answer: &'static str) -> (String, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = RelayUrl::from(listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let length = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        length
    });
    let answered = runtime::block_on(ask_all(&[url])).unwrap();
    assert!(serving.join().unwrap() > 0);
    answered
}

#[test]
fn only_200_is_alive() {
    let (line, alive) = asked("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert!(alive && line.starts_with("live: http://127.0.0.1:"), "{line}");
    let stuck = r#"{"live":false,"reasons":[{"code":"loop_stuck","text":"the loop hangs"}]}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: {}\r\n\r\n{stuck}",
        stuck.len()
    );
    let (line, alive) = asked(answer.leak());
    assert!(!alive && line.ends_with(": the loop hangs\n"), "{line}");
    let (line, alive) = asked("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert!(!alive && line.ends_with(": it answered 404\n"), "{line}");
}

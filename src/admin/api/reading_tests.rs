//! Readings of the dead-letter topic, and who waits for them.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tests::{ApiFixture, TOKEN, bearer, exchange, fixture};
use crate::base::error::Fault;
use crate::sink::log::{DeadLetterLog, LogRead};

/// A dead-letter topic that sends nothing, and no end.
struct SilentLog;

impl DeadLetterLog for SilentLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        std::thread::park_timeout(patience);
        Ok(LogRead::Nothing)
    }
}

/// A server whose readings do not end.
fn unending() -> ApiFixture {
    let fixture = fixture();
    fixture.broker.change_logs(|_| Ok(Box::new(SilentLog)));
    fixture
}

#[test]
fn one_request_reads_the_topic_and_only_while_its_client_waits() {
    // GIVEN a reading that does not end
    let fixture = unending();
    let mut client = TcpStream::connect(fixture.admin.addr).unwrap();
    write!(client, "GET /api/dlq HTTP/1.1\r\nHost: localhost\r\n{}\r\n", bearer(TOKEN)).unwrap();
    let turn = &fixture.admin.api.topic_turn;
    while turn.available_permits() > 0 {
        std::thread::yield_now();
    }
    // THEN another one is sent away after a while
    let (code, body) = fixture.get("/api/dlq");
    assert_eq!((code, body["code"].as_str()), (503, Some("api.busy")));
    assert_eq!(turn.available_permits(), 0);
    // WHEN the client leaves THEN the reading ends
    drop(client);
    let begun = Instant::now();
    while turn.available_permits() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_the_process_ends_a_reading() {
    let fixture = unending();
    let (addr, api) = (fixture.admin.addr, Arc::clone(&fixture.admin.api));
    let asked = std::thread::spawn(move || exchange(addr, "GET /api/dlq", &bearer(TOKEN), ""));
    while api.topic_turn.available_permits() > 0 {
        std::thread::yield_now();
    }
    drop(fixture.admin);
    let (_, _, body) = asked.join().unwrap();
    assert_eq!(body["code"], "dead-letter.interrupted", "{body}");
}

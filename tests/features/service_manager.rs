//! Tests of the messages that systemd gets from a relay that it has started, on a socket in its
//! place; and the health check.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::status::scene;
use crate::support::faults::{CliFixture, LIMIT};

/// The socket of a service manager, whose address the relay gets.
struct ServiceManager(UnixDatagram);

impl ServiceManager {
    fn of(scene: &mut CliFixture<'_>) -> ServiceManager {
        let name = format!("walrelay-{}-{}", std::process::id(), scene.name);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        scene.env = [("NOTIFY_SOCKET", format!("@{name}")), ("WATCHDOG_USEC", "3000000".into())]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec();
        ServiceManager(socket)
    }

    fn next(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }

    /// Every line up to the first that begins so.
    fn until(&self, start: &str) -> Vec<String> {
        let began = Instant::now();
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.starts_with(start)) {
            assert!(began.elapsed() < LIMIT, "no {start} in {lines:?}");
            lines.extend(self.next().iter().flat_map(|text| text.lines()).map(str::to_owned));
        }
        lines
    }
}

#[test]
fn systemd_hears_of_start_state_life_reload_and_end() {
    let (mut scene, _) = scene("notified");
    let manager = ServiceManager::of(&mut scene);
    // GIVEN no relay THEN the health check fails
    scene.walrelay(&["status", "--live"]).assert_says(&["not live: http://127.0.0.1:"]);
    let relay = scene.spawn(&["run"]);
    // THEN the start is over when the relay streams
    let lines = manager.until("READY=1");
    // The relay looks once a second, so the first look may find it connecting.
    let begins = ["STATUS=starting", "STATUS=connecting"];
    let is_begin = |line: &String| begins.iter().any(|begin| line.starts_with(begin));
    assert!(lines.iter().any(is_begin), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "STATUS=streaming");
    for _ in 0..2 {
        manager.until("WATCHDOG=1");
    }
    let ended = scene.walrelay(&["status", "--live"]);
    ended.assert_done().assert_says(&["live: http://127.0.0.1:"]);
    // WHEN it reloads THEN that is announced, and over
    relay.signal(Signal::HUP);
    let lines = manager.until("RELOADING=1");
    assert!(lines.last().unwrap().starts_with("MONOTONIC_USEC="), "{lines:?}");
    manager.until("READY=1");
    // WHEN it stops THEN that is announced before it has
    let ended = relay.stop();
    ended.assert_done();
    manager.until("STOPPING=1");
}

#[test]
fn systemd_hears_why_a_start_has_failed() {
    let (mut scene, _) = scene("not_started");
    scene.sql("SELECT pg_drop_replication_slot('not_started')");
    let manager = ServiceManager::of(&mut scene);
    scene.walrelay(&["run"]).assert_fault(3, "slot.missing", &[]);
    let lines = manager.until("STATUS=ended");
    let last = lines.last().unwrap();
    assert!(last.starts_with("STATUS=ended with slot.missing: "), "{last}");
    assert!(!lines.iter().any(|line| line == "READY=1"), "{lines:?}");
    // WHEN the configuration is the fault
    scene.listen = "9464".into();
    scene.walrelay(&["run"]).assert_fault(2, "config.bad-value", &[]);
    let last = manager.until("STATUS=ended").pop().unwrap();
    assert!(last.starts_with("STATUS=ended with config.bad-value: admin.listen: "), "{last}");
}

//! Tests of the messages that a service manager receives, over real datagram sockets.

use super::*;
use crate::error::Exit;
use crate::testing::service_manager as pair;

/// Every datagram that has come.
fn received(socket: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 4096];
    let next = || socket.recv(&mut buffer).ok().map(|length| text_of(&buffer[..length]));
    std::iter::from_fn(next).collect()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn datagrams_reach_a_socket_with_a_path() {
    let path = std::env::temp_dir().join(format!("walrelay-notify-{}.sock", std::process::id()));
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
    assert!(manager.send("READY=1\nSTATUS=streaming"));
    assert_eq!(received(&socket), ["READY=1\nSTATUS=streaming"]);
    assert_eq!(manager.watchdog_every, None);
    drop(socket);
    std::fs::remove_file(&path).unwrap();
    // WHEN nobody listens there any more THEN the sender is told
    assert!(!manager.send("READY=1"));
}

#[test]
fn a_reload_is_announced_with_its_time_once_the_start_is_over() {
    let (socket, manager) = pair("reload");
    assert_eq!(manager.watchdog_every, Some(Duration::from_secs(10)));
    // GIVEN a start that is under way THEN READY=1 is not said on its behalf
    manager.while_reloading(&|| {});
    assert!(received(&socket).is_empty());
    manager.started();
    let before = monotonic_us();
    manager.while_reloading(&|| assert!(manager.send("during=1")));
    let datagrams = received(&socket);
    let [begun, during, done] = &datagrams[..] else { panic!("{datagrams:?}") };
    let time = begun.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
    assert!((before..=monotonic_us()).contains(&time), "{begun}");
    assert_eq!((during.as_str(), done.as_str()), ("during=1", "READY=1"));
}

#[test]
fn a_status_is_one_line_of_limited_length() {
    let (socket, manager) = pair("status");
    manager.stopping();
    let fault = Fault::new(Exit::Slot, "slot.missing", "a\nREADY=1", "", "");
    manager.ended(&fault);
    let stopping = "STOPPING=1".to_owned();
    let ended = "STOPPING=1\nSTATUS=ended with slot.missing: a\\nREADY=1".to_owned();
    assert_eq!(received(&socket), [stopping, ended]);
    assert!(status_line(&"x".repeat(5000)).len() < 1100);
}

#[test]
fn addresses_of_other_kinds_are_refused() {
    for address in ["vsock:2:1234", "relative/path", "@"] {
        assert_eq!(ServiceManager::at(OsStr::new(address), None).is_err(), address != "@");
    }
    assert!(!ServiceManager::default().send("READY=1"));
}

#[test]
fn a_socket_that_nobody_reads_does_not_keep_the_sender() {
    let (_socket, manager) = pair("full");
    let began = std::time::Instant::now();
    let taken = (0..10_000).take_while(|_| manager.send("WATCHDOG=1")).count();
    assert!(taken < 10_000 && began.elapsed() < Duration::from_secs(5), "{taken}");
}

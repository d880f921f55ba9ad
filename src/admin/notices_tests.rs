//! Tests of the messages that are sent, and when, as a socket in the place of the service manager's
//! receives it.

use std::os::unix::net::UnixDatagram;

use super::*;
use crate::base::testing::service_manager;

struct Stage {
    socket: UnixDatagram,
    notices: Notices,
}

fn stage(name: &str) -> Stage {
    let (socket, manager) = service_manager(name);
    Stage { socket, notices: Notices::new(Arc::new(manager)) }
}

impl Stage {
    /// Looks once, and returns what has come of it.
    fn look(&mut self, health: &Health, now_ms: u64) -> Option<String> {
        self.look_with(health, "", now_ms)
    }

    fn look_with(&mut self, health: &Health, note: &str, now_ms: u64) -> Option<String> {
        self.notices.look(health, note, now_ms);
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }
}

fn health(state: HealthState, reason: Option<StateReason>) -> Health {
    let reasons = reason.into_iter().collect();
    Health { state, since_ms: 0, reason, reasons }
}

fn starting() -> Health {
    health(HealthState::Starting, Some(StateReason::Starting))
}

fn streaming() -> Health {
    health(HealthState::Streaming, None)
}

#[test]
fn ready_comes_once_with_the_first_state_after_the_start() {
    let mut stage = stage("ready");
    let sent = stage.look(&starting(), 0).unwrap();
    assert_eq!(sent, "WATCHDOG=1\nSTATUS=starting: checks before the first event are not done");
    assert_eq!(stage.look(&starting(), 1_000), None);
    assert_eq!(stage.look(&streaming(), 2_000).unwrap(), "READY=1\nSTATUS=streaming");
    assert_eq!(stage.look(&streaming(), 3_000), None);
}

#[test]
fn a_relay_that_waits_by_itself_has_started() {
    let standby = health(HealthState::Standby, Some(StateReason::SlotBusy));
    let blocked = health(HealthState::Blocked, Some(StateReason::SinkDown(4_000)));
    let halted = health(HealthState::Halted, Some(StateReason::Halted("slot.moved")));
    let stopped = health(HealthState::Halted, Some(StateReason::Stopped));
    let draining = health(HealthState::Draining, Some(StateReason::Draining));
    let stuck = health(HealthState::Stalled, Some(StateReason::LoopStuck(61_000)));
    let connecting = health(HealthState::Connecting, Some(StateReason::NotStreaming(1_000)));
    for (health, now_ms, is_ready) in [
        (&standby, 0, true),
        (&blocked, 0, true),
        (&halted, 0, true),
        (&stopped, 90_000, false),
        (&draining, 90_000, false),
        (&stuck, 90_000, false),
        (&connecting, STARTED_AFTER_MS - 1, false),
        (&connecting, STARTED_AFTER_MS, true),
        (&starting(), STARTED_AFTER_MS, true),
    ] {
        let mut stage = stage("waits");
        let sent = stage.look(health, now_ms).unwrap();
        assert_eq!(sent.starts_with("READY=1\n"), is_ready, "{health:?} at {now_ms}: {sent}");
    }
}

#[test]
fn the_watchdog_hears_of_the_loop_alone() {
    let mut stage = stage("watchdog");
    stage.look(&streaming(), 0);
    assert_eq!(stage.look(&streaming(), 9_000), None);
    assert_eq!(stage.look(&streaming(), 10_000).unwrap(), "WATCHDOG=1");
    // GIVEN a broker that is down THEN a restart would not help
    let down = health(HealthState::Blocked, Some(StateReason::SinkDown(0)));
    assert!(stage.look(&down, 20_000).unwrap().starts_with("WATCHDOG=1\n"));
    // GIVEN a loop that hangs, as /livez says THEN nothing keeps the watchdog quiet
    let stuck = health(HealthState::Stalled, Some(StateReason::LoopStuck(61_000)));
    let sent = stage.look(&stuck, 30_000).unwrap();
    assert_eq!(sent, "STATUS=stalled: the data loop has not come round for 61 s");
    assert_eq!(stage.look(&stuck, 60_000), None);
}

#[test]
fn a_status_is_sent_when_it_is_news() {
    let mut stage = stage("status");
    let down = |ms| health(HealthState::Blocked, Some(StateReason::SinkDown(ms)));
    let sent = stage.look_with(&down(0), "kafka:9092: refused", 0).unwrap();
    assert!(
        sent.ends_with("blocked: the sink has taken no event for 0 s (kafka:9092: refused)"),
        "{sent}"
    );
    let sent = stage.look(&down(1_000), 1_000).unwrap();
    assert_eq!(sent, "STATUS=blocked: the sink has taken no event for 1 s");
    assert_eq!(stage.look(&down(1_000), 1_500), None);
    // GIVEN a service manager that is away for a moment THEN it is told everything again
    let unread = std::mem::replace(&mut stage.socket, UnixDatagram::unbound().unwrap());
    let address = unread.local_addr().unwrap();
    drop(unread);
    stage.notices.look(&streaming(), "", 12_000);
    stage.socket = UnixDatagram::bind_addr(&address).unwrap();
    let sent = stage.look(&streaming(), 13_000).unwrap();
    assert_eq!(sent, "READY=1\nWATCHDOG=1\nSTATUS=streaming");
}

//! Each state is told by metrics, `/status` and the log within seconds, also while the data path is
//! stuck. In `make test`, where a busy machine may stand still, it is enough that it is told.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use walrelay_harness::load::Backlog;
use walrelay_harness::proc::signal;
use walrelay_harness::relay::{RelayConfig, RelayProcess, get};
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions};

use crate::support::{
    Fixture, LIMIT, name_on, on_both_brokers, shared_postgres, state, status, volume, wait_until,
    window_is_full,
};

/// How long a state may take to be told.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// The longest until a standstill is reported, which happens after 3 s.
const STANDSTILL_TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Waits for the state; with the volume of `make soak` it must be told within `limit`.
#[track_caller]
fn wait_state(relay: &RelayProcess, wanted: &str, limit: Duration) {
    let limit = volume(LIMIT, limit);
    let began = Instant::now();
    while state(relay) != wanted {
        if began.elapsed() > limit {
            let shown = get(relay.admin(), "/status", Duration::from_secs(2)).map(|it| it.body);
            panic!("not {wanted} within {limit:?}, but {shown:?}\n{}", relay.tail(40));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{wanted} after {:?}", began.elapsed());
}

/// `/status` names state and leading reason, and since when.
#[track_caller]
fn assert_status(relay: &RelayProcess, wanted: &str, codes: &[&str]) {
    let status = status(relay);
    assert_eq!(status["state"], wanted, "{status}");
    let code = status["reason"]["code"].as_str().unwrap_or_default();
    assert!(codes.contains(&code), "{status}");
    assert!(status["since_seconds"].as_u64().is_some_and(|seconds| seconds < 60), "{status}");
    assert!(status["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{status}");
}

on_both_brokers!(a_broker_that_stands_still_or_is_gone_is_told_and_the_relay_recovers, rabbitmq in soak);

fn a_broker_that_stands_still_or_is_gone_is_told_and_the_relay_recovers(kind: BrokerKind) {
    // GIVEN a relay that streams
    let mut broker = Broker::start(kind).unwrap();
    let site = Fixture::new(shared_postgres(), &broker, &name_on(kind, "states_broker"));
    broker.sync_declarations().unwrap();
    let mut config = site.config();
    config.extra = "[delivery]\nwindow_events_max = 200\n".into();
    let mut relay = site.relay_with(config);
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    wait_state(&relay, "streaming", TOLD_WITHIN);
    assert_status(&relay, "streaming", &[""]);
    let sink = status(&relay)["sink"].as_str().map(str::to_lowercase);
    assert_eq!(sink.as_deref(), Some(kind.name().to_lowercase().as_str()));
    assert_eq!(status(&relay)["mode"], "cdc");
    // WHEN its broker stands still and the window is full
    broker.freeze().unwrap();
    Backlog::new(&site.url, 2_000).fill().unwrap();
    wait_until("a full window", || window_is_full(&relay));
    // THEN the relay is held, and the admin server answers at once
    wait_state(&relay, "held", STANDSTILL_TOLD_WITHIN);
    assert_status(&relay, "held", &["window_full"]);
    for path in ["/livez", "/readyz", "/status", "/metrics"] {
        let answer = get(relay.admin(), path, Duration::from_secs(1)).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
    // WHEN it goes on THEN so does the relay
    broker.thaw().unwrap();
    wait_state(&relay, "streaming", LIMIT);
    site.wait_confirmed(&mut relay, LIMIT);
    // WHEN it is killed THEN the relay is blocked, until it is there again
    broker.kill9().unwrap();
    site.insert_event("key", 2);
    wait_state(&relay, "blocked", TOLD_WITHIN);
    assert_status(&relay, "blocked", &["sink_down"]);
    let readyz = get(relay.admin(), "/readyz", Duration::from_secs(1)).unwrap();
    assert!(readyz.status == 503 && readyz.body.starts_with("sink_down: "), "{}", readyz.body);
    broker.start_again().unwrap();
    wait_state(&relay, "streaming", LIMIT);
    site.wait_confirmed(&mut relay, LIMIT);
    // WHEN it stands still once more and the relay is told to stop THEN it drains, and then halts
    broker.freeze().unwrap();
    site.insert_event("key", 3);
    wait_until("the event in flight", || status(&relay)["in_flight"]["events"] == 1);
    relay.sigterm().unwrap();
    wait_state(&relay, "draining", TOLD_WITHIN);
    assert_status(&relay, "draining", &["draining"]);
    broker.thaw().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 0, "{}", relay.tail(20));
    // AND the log has each change
    for (from, to) in [
        ("streaming", "held"),
        ("streaming", "blocked"),
        ("blocked", "streaming"),
        ("streaming", "draining"),
        ("draining", "halted"),
    ] {
        let line = format!("\"code\":\"state\",\"from\":\"{from}\",\"to\":\"{to}\"");
        assert!(relay.said(&line), "{line} not in\n{}", relay.tail(40));
    }
}

#[test]
fn a_postgres_that_is_gone_or_stands_still_is_told_and_the_relay_recovers() {
    // GIVEN a relay that streams
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "states_postgres");
    let config = site.config();
    let url = format!("{}?connect_timeout=2", config.url);
    let mut relay = site.relay_with(RelayConfig { url, ..config });
    wait_state(&relay, "streaming", TOLD_WITHIN);
    // WHEN Postgres crashes THEN the relay connects until it is there again
    postgres.crash().unwrap();
    wait_state(&relay, "connecting", TOLD_WITHIN);
    assert_status(&relay, "connecting", &["not_streaming"]);
    postgres.start_again().unwrap();
    wait_state(&relay, "streaming", LIMIT);
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    // WHEN every process of Postgres stands still THEN the admin server answers, and says so, although
    // the relay is idle
    let backends = site.value(
        "select string_agg(pid::text, ' ') from pg_stat_activity where pid <> pg_backend_pid()",
    );
    let backends: Vec<u32> = backends.split(' ').map(|pid| pid.parse().unwrap()).collect();
    postgres.freeze().unwrap();
    for pid in &backends {
        signal(*pid, Signal::STOP).unwrap();
    }
    wait_state(&relay, "stalled", STANDSTILL_TOLD_WITHIN);
    assert_status(&relay, "stalled", &["postgres_silent"]);
    assert_eq!(status(&relay)["slot"]["lag_seconds"], serde_json::Value::Null);
    let livez = get(relay.admin(), "/livez", Duration::from_secs(1)).unwrap();
    assert_eq!(livez.status, 200, "{}", livez.body);
    for pid in &backends {
        // One whose connection has ended may end when the others go on.
        signal(*pid, Signal::CONT).ok();
    }
    postgres.thaw().unwrap();
    wait_state(&relay, "streaming", LIMIT);
    site.insert_event("key", 2);
    site.wait_confirmed(&mut relay, LIMIT);
}

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::address::{self, RelayName};
use super::*;

#[path = "bounded_tests.rs"]
mod bounded;

use crate::base::lsn::Lsn;
use crate::base::secret::Secret;
use crate::dead_letter::destinations::Destinations;
use crate::dead_letter::writer::DeadLetterSettings;
use crate::health::{self, FactsWriter, IntakeHold, Pass, Phase, StateWatch};
use crate::metrics::{Metrics, Point};
use crate::sink::testing::MemoryBroker;

/// When the clock of the facts began.
const ORIGIN_UNIX_US: i64 = 1_764_032_400_000_000;

/// A server on a free port, its data thread played by the test, its clock set by hand.
struct Stage {
    admin: Option<Admin>,
    addr: SocketAddr,
    recorder: FactsWriter,
    metrics: Arc<Metrics>,
    now_ms: Arc<AtomicU64>,
}

fn stage() -> Stage {
    stage_of(Some("relay<1>"))
}

fn stage_of(slot: Option<&str>) -> Stage {
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    let (recorder, view) = view(slot);
    let view = AdminView { clock: Arc::new(move || clock.load(Ordering::Relaxed)), ..view };
    let metrics = Arc::clone(&view.metrics);
    let admin = Admin::start("127.0.0.1:0".parse().unwrap(), &[], view, letters()).unwrap();
    Stage { addr: admin.addr, admin: Some(admin), recorder, metrics, now_ms }
}

/// The view that a server shows, and the writer that changes it.
pub(super) fn view(slot: Option<&str>) -> (FactsWriter, AdminView) {
    let (recorder, facts) = health::facts(0);
    let metrics = Arc::new(Metrics::new());
    let states = StateWatch::new(Arc::clone(&metrics), ORIGIN_UNIX_US);
    let states = Arc::new(states);
    let view = AdminView {
        metrics,
        facts,
        states,
        clock: clock_since(Instant::now()),
        service_manager: Arc::default(),
        source_slot: slot.unwrap_or("relay").to_owned(),
        slot: slot.map(str::to_owned),
        sink: "kafka",
    };
    (recorder, view)
}

/// Nobody may act on them.
fn letters() -> DeadLetterAccess {
    letters_of(&MemoryBroker::default(), None)
}

/// The letters of this broker, for those who have the token.
pub(super) fn letters_of(broker: &MemoryBroker, token: Option<&str>) -> DeadLetterAccess {
    DeadLetterAccess {
        broker: Arc::new(broker.clone()),
        address: DeadLetterSettings::default().address,
        destinations: Destinations::anywhere(),
        finder: None,
        stops: None,
        token: token.map(Secret::new),
    }
}

fn streaming() -> Pass {
    Pass {
        phase: Phase::Streaming,
        sink_reachable: true,
        received_lsn: Lsn::from_wire(0x16_0000_0300),
        sent_lsn: Lsn::from_wire(0x16_0000_0200),
        confirmed_lsn: Lsn::from_wire(0x16_0000_0100),
        ..Pass::default()
    }
}

/// Sends a request with these headers; status, head and body of the answer.
pub(super) fn exchange(
    addr: SocketAddr,
    first: &str,
    headers: &str,
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut request = format!("{first} HTTP/1.1\r\n{headers}");
    for (name, value) in [("Host", "localhost"), ("Content-Length", &body.len().to_string())] {
        if !headers.contains(name) {
            request += &format!("{name}: {value}\r\n");
        }
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_owned(), body.to_owned())
}

fn get_with(addr: SocketAddr, path: &str, header: &str) -> (u16, String, String) {
    exchange(addr, &format!("GET {path}"), header, "")
}

fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let (code, _, body) = get_with(addr, path, "");
    (code, body)
}

fn json_of(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

const ACCEPT_JSON: &str = "Accept: application/json\r\n";

/// The JSON of a path that answers with it where it is asked for.
fn get_json(addr: SocketAddr, path: &str) -> Value {
    json_of(&get_with(addr, path, ACCEPT_JSON).2)
}

#[test]
fn readiness_follows_the_facts_and_tells_its_reasons() {
    let mut stage = stage();
    let (code, body) = get(stage.addr, "/readyz");
    assert_eq!(
        (code, body.as_str()),
        (503, "starting: checks before the first event are not done\n")
    );
    stage.recorder.pass(&streaming(), 0);
    assert_eq!(get(stage.addr, "/readyz"), (200, "ready\n".into()));
    stage.recorder.pass(&Pass { sink_reachable: false, ..streaming() }, 1_000);
    stage.now_ms.store(5_000, Ordering::Relaxed);
    assert_eq!(
        get(stage.addr, "/readyz"),
        (503, "sink_down: the sink has taken no event for 4 s\n".into())
    );
    assert_eq!(get(stage.addr, "/livez"), (200, "live\n".into()));
}

#[test]
fn a_relay_that_stands_by_is_well_for_those_who_say_so_unless_its_broker_is_away() {
    let mut stage = stage();
    let hold = Some(IntakeHold::DeadLettersUnread);
    let standby = Pass { phase: Phase::Standby, hold, ..streaming() };
    stage.recorder.pass(&standby, 0);
    stage.recorder.pass(&standby, 40_000);
    stage.now_ms.store(40_000, Ordering::Relaxed);
    assert_eq!(get(stage.addr, "/readyz").0, 503);
    assert_eq!(get(stage.addr, "/readyz?standby=no").0, 503);
    assert_eq!(get(stage.addr, "/readyz?standby=ok"), (200, "standby\n".into()));
    let body = get_json(stage.addr, "/readyz?standby=ok");
    assert_eq!((&body["standby"], &body["ready"]), (&true.into(), &false.into()));
    stage.recorder.pass(&Pass { sink_reachable: false, ..standby }, 40_000);
    let (code, body) = get(stage.addr, "/readyz?standby=ok");
    assert_eq!((code, body.as_str()), (503, "sink_down: the sink has taken no event for 0 s\n"));
    // Whoever streams is judged as ever.
    stage.recorder.pass(&streaming(), 40_000);
    assert_eq!(get(stage.addr, "/readyz?standby=ok"), (200, "ready\n".into()));
}

#[test]
fn verdicts_are_json_for_those_who_ask() {
    let stage = stage();
    let (code, head, body) = get_with(stage.addr, "/readyz", ACCEPT_JSON);
    assert_eq!(code, 503);
    assert!(head.contains("content-type: application/json"), "{head}");
    let body = json_of(&body);
    assert_eq!(body["ready"], false);
    assert_eq!(body["reasons"][0]["code"], "starting");
    assert_eq!((&body["state"], &body["since_seconds"]), (&"starting".into(), &0.into()));
    assert_eq!(body["reason"]["code"], "starting");
    let (_, _, body) = get_with(stage.addr, "/livez", ACCEPT_JSON);
    assert_eq!(body, "{\"live\":true,\"reasons\":[]}\n");
}

#[test]
fn it_answers_truthfully_while_the_data_thread_is_stuck() {
    let mut stage = stage();
    stage.recorder.pass(&streaming(), 0);
    // WHEN the data thread does not come round for two minutes
    stage.now_ms.store(120_000, Ordering::Relaxed);
    // THEN neither probe is content, and metrics are still served
    let stuck = "loop_stuck: the data loop has not come round for 120 s\n";
    assert_eq!(get(stage.addr, "/livez"), (503, stuck.into()));
    assert_eq!(get(stage.addr, "/readyz"), (503, stuck.into()));
    assert_eq!(get(stage.addr, "/metrics").0, 200);
}

#[test]
fn metrics_are_served_in_the_text_format() {
    let stage = stage();
    stage.metrics.retries.inc_by(3);
    let (code, head, body) = get_with(stage.addr, "/metrics", "");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("outbox_retries_total 3\n"));
    assert!(body.contains("process_resident_memory_bytes "));
}

#[test]
fn status_is_json_with_positions_and_slot() {
    let mut stage = stage();
    stage.recorder.pass(&Pass { in_flight_events: 2, in_flight_bytes: 64, ..streaming() }, 0);
    stage.metrics.set_wal("extended", None);
    stage.metrics.slot_active.set(1);
    stage.metrics.slot_lag_seconds.set(0.0);
    stage.metrics.slot_retained_wal_bytes.set(64.0);
    stage.metrics.slot_lag_bytes.at(Point::Confirmed).set(17.0);
    let (code, body) = get(stage.addr, "/status");
    let status = json_of(&body);
    assert_eq!(code, 200);
    assert_eq!(status["state"], "streaming");
    assert_eq!((&status["mode"], &status["sink"]), (&"cdc".into(), &"kafka".into()));
    assert_eq!(status["reason"], Value::Null);
    assert_eq!(status["ready"], true);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["lsn"]["received"], "16/300");
    assert_eq!(status["lsn"]["confirmed"], "16/100");
    assert_eq!(status["in_flight"]["events"], 2);
    assert_eq!(status["slot"]["wal_status"], "extended");
    assert_eq!(status["slot"]["safe_wal_bytes"], Value::Null);
    assert_eq!(status["slot"]["pinned_by"], Value::Null);
    assert_eq!(status["polling"], Value::Null);
    let of_slot = |status: &Value| {
        let slot = &status["slot"];
        let confirmed = &slot["lag_bytes"]["confirmed"];
        serde_json::json!([
            slot["active"],
            slot["lag_seconds"],
            slot["retained_wal_bytes"],
            confirmed
        ])
    };
    assert_eq!(of_slot(&status), serde_json::json!([true, 0.0, 64, 17]));
    // WHEN the slot is not read any more THEN none of its figures is told
    stage.metrics.set_slot_unknown();
    let status = get_json(stage.addr, "/status");
    assert_eq!(of_slot(&status), serde_json::json!([null, null, null, null]));
    assert_eq!(status["slot"]["wal_status"], Value::Null);
}

#[test]
fn a_state_is_told_with_its_reason_and_since_when_by_status_metrics_and_readiness() {
    let mut stage = stage();
    stage.recorder.pass(&streaming(), 0);
    assert_eq!(get(stage.addr, "/readyz").0, 200);
    // WHEN three events are not confirmed for 6 s
    stage.recorder.pass(&Pass { in_flight_events: 3, ..streaming() }, 1_000);
    stage.now_ms.store(6_001, Ordering::Relaxed);
    let text = "the broker has not confirmed 3 events for 6 s";
    let status = get_json(stage.addr, "/status");
    assert_eq!(status["state"], "blocked");
    assert_eq!(status["since"], "2025-11-25T01:00:06.001000Z");
    stage.now_ms.store(9_500, Ordering::Relaxed);
    let status = get_json(stage.addr, "/status");
    // THEN it says so, and is still ready
    assert_eq!(status["since_seconds"], 3);
    assert_eq!(status["reason"]["code"], "broker_silent");
    assert_eq!(status["reason"]["text"], text.replace("6 s", "9 s"));
    assert_eq!((&status["ready"], &status["reasons"]), (&true.into(), &serde_json::json!([])));
    let (code, _, body) = get_with(stage.addr, "/readyz", ACCEPT_JSON);
    let body = json_of(&body);
    assert_eq!((code, &body["ready"], &body["state"]), (200, &true.into(), &"blocked".into()));
    let (_, metrics) = get(stage.addr, "/metrics");
    assert!(metrics.contains("outbox_state{state=\"blocked\"} 1\n"), "{metrics}");
    assert!(metrics.contains("outbox_state{state=\"streaming\"} 0\n"), "{metrics}");
    assert!(metrics.contains("outbox_state_since_timestamp_seconds 1764032406.001\n"), "{metrics}");
}

#[test]
fn where_a_table_is_polled_status_tells_of_its_backlog_and_of_no_slot() {
    let mut stage = stage_of(None);
    stage.recorder.pass(&Pass { phase: Phase::Polling, ..streaming() }, 0);
    let status = get_json(stage.addr, "/status");
    assert_eq!((&status["state"], &status["ready"]), (&"polling".into(), &true.into()));
    assert_eq!(status["mode"], "polling");
    assert_eq!((&status["slot"], &status["source_slot"]), (&Value::Null, &"relay".into()));
    assert_eq!(status["polling"]["backlog"], Value::Null, "nobody has looked yet");
    stage.metrics.backlog.set(17.0);
    stage.metrics.backlog_age_seconds.set(2.5);
    let status = get_json(stage.addr, "/status");
    assert_eq!(status["polling"]["backlog"], 17);
    assert_eq!(status["polling"]["backlog_age_seconds"], 2.5);
}

#[test]
fn an_address_that_a_relay_has_is_that_of_the_configured_one_only_if_both_have_one_name() {
    for (slot, told) in
        [(None, "relay that polls (source.slot relay)"), (Some("relay"), "relay of slot relay")]
    {
        let stage = stage_of(slot);
        let inspected = |source_slot: &str, polls| {
            let configured = RelayName { source_slot: source_slot.to_owned(), polls };
            address::inspect(stage.addr, &configured)
        };
        let own = inspected("relay", slot.is_none());
        assert!(own.is_warning() && own.text.contains(&format!("a {told} runs")), "{own:?}");
        assert!(own.text.contains("if that is a relay of another database"), "{own:?}");
        for other in [inspected("other", slot.is_none()), inspected("relay", slot.is_some())] {
            let fault = other.fault.expect("it is the address of another relay");
            assert!(fault.what.ends_with(&format!("the {told} listens there")), "{fault}");
        }
    }
}

#[test]
fn status_tells_of_dead_letters() {
    let stage = stage();
    let letters = || get_json(stage.addr, "/status")["dead_letters"].take();
    // GIVEN a topic that was not read yet THEN that is no zero
    assert_eq!(letters()["open"], Value::Null);
    assert_eq!(letters()["oldest_age_seconds"], Value::Null);
    // WHEN it is read
    stage.metrics.dlq_depth.set(1234.0);
    stage.metrics.dlq_oldest_age_seconds.set(3_700.5);
    stage.metrics.dlq_parked_keys.set(3);
    stage.metrics.dlq_breaker_open.set(1);
    stage.metrics.dlq_publish_failed.inc_by(2);
    assert_eq!(
        letters(),
        serde_json::json!({
            "open": 1234, "oldest_age_seconds": 3_700.5, "parked_keys": 3,
            "breaker_open": true, "publish_failed": 2
        })
    );
}

#[test]
fn the_page_may_load_its_own_files_only() {
    let stage = stage();
    let (code, head, _) = get_with(stage.addr, "/", "");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{head}"
    );
    assert!(!head.contains("unsafe"), "{head}");
    let (code, head, _) = get_with(stage.addr, "/console/app.js", "");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/javascript"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    assert_eq!(get(stage.addr, "/console/mod.rs").0, 404);
}

#[test]
fn a_foreign_host_name_is_refused_and_monitoring_is_not() {
    let stage = stage();
    let ask = |path: &str| get_with(stage.addr, path, "Host: relay.svc:9464\r\n");
    for path in ["/", "/status", "/console/app.js", "/nothing"] {
        let (code, _, body) = ask(path);
        assert_eq!(code, 421, "{path}: {body}");
        assert!(body.contains("[admin] hosts = [\"relay.svc\"]"), "{body}");
    }
    let body = json_of(&ask("/api/dlq").2);
    assert_eq!(
        (body["code"].as_str(), body["where"].as_str()),
        (Some("admin.host"), Some("admin.hosts"))
    );
    assert_eq!(ask("/metrics").0, 200);
    assert_eq!(ask("/readyz").0, 503, "still starting");
}

#[test]
fn other_paths_and_methods_are_refused() {
    let stage = stage();
    let (code, body) = get(stage.addr, "/nothing");
    assert!(code == 404 && body.contains("/api/dlq, /api/find"), "{code}: {body}");
    assert_eq!(exchange(stage.addr, "POST /metrics", "", "").0, 405);
    for wrong in ["since=", "since=yesterday", "until=1"] {
        let (code, body) = get(stage.addr, &format!("/history?{wrong}"));
        assert_eq!(code, 400);
        assert!(body.contains("/history?since=SECONDS"), "{body}");
    }
}

#[test]
fn an_endless_header_is_refused() {
    let stage = stage();
    let mut stream = TcpStream::connect(stage.addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let line = format!("X: {}\r\n", "x".repeat(60_000));
    let mut sent = stream.write_all(b"GET / HTTP/1.1\r\n");
    for _ in 0..100 {
        sent = sent.and_then(|()| stream.write_all(line.as_bytes()));
    }
    let mut start = [0_u8; 12];
    let answered = stream.read_exact(&mut start).is_ok();
    assert!(sent.is_err() || (answered && &start == b"HTTP/1.1 431"));
}

#[test]
fn an_address_in_use_is_a_fault_that_says_how_to_mend_it() {
    let stage = stage();
    let taken = stage.addr;
    let (_recorder, view) = view(None);
    let fault = Admin::start(taken, &[], view, letters()).err().unwrap();
    assert_eq!((fault.code, fault.exit), ("admin.listen", Exit::Failed));
    assert!(fault.what.contains(&taken.to_string()));
    assert!(fault.mend.contains(&format!("ss -ltnp 'sport = :{}'", taken.port())));
}

#[test]
fn a_stop_frees_the_address_and_is_not_held_up_by_an_idle_client() {
    let mut stage = stage();
    // GIVEN a client that connected and says nothing
    let idle = TcpStream::connect(stage.addr).unwrap();
    get(stage.addr, "/livez");
    // WHEN the server is stopped
    let begun = Instant::now();
    drop(stage.admin.take());
    // THEN it ends within the grace and nobody listens any more
    assert!(begun.elapsed() < super::bounded::STOP_GRACE + Duration::from_secs(3));
    assert!(TcpStream::connect(stage.addr).is_err());
    drop(idle);
}

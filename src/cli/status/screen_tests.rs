use serde_json::json;

use super::super::relay_url::RelayUrl;
use super::*;

const TERMINAL: ScreenStyle = ScreenStyle { columns: 80, is_plain: false, is_coloured: false };
const PIPE: ScreenStyle = ScreenStyle { columns: 80, is_plain: true, is_coloured: false };

fn relay(url: &str, status: Result<Value, Fault>, history: Value) -> AskedRelay {
    let mut relay = AskedRelay::new(RelayUrl::parse(url).unwrap());
    (relay.status, relay.history) = (status, history);
    relay
}

fn streaming() -> Value {
    json!({
        "version": "0.1.0", "state": "streaming", "ready": true, "live": true, "mode": "cdc",
        "sink": "kafka", "since": "2026-11-25T01:02:03Z", "since_seconds": 842, "reason": null,
        "reasons": [], "note": "", "uptime_seconds": 10_920,
        "in_flight": { "events": 128, "bytes": 4_194_304, "limit": 256 },
        "events": { "published": 1_234_567, "dead_lettered": 3, "retries": 12 },
        "dead_letters": { "open": 3, "oldest_age_seconds": 3_725.5, "parked_keys": 2, "breaker_open": false },
        "slot": {
            "name": "walrelay", "wal_status": "reserved",
            "lag_bytes": { "received": 0, "sent": 0, "confirmed": 1_258_291 }, "lag_seconds": 0.84,
            "retained_wal_bytes": 1_073_741_824_u64, "safe_wal_bytes": 9_663_676_416_u64
        },
        "polling": null,
        "rates": {
            "published_per_second": 12_345.6, "dead_lettered_per_second": 0.1,
            "retries_per_second": 0.0, "over_seconds": 10
        },
        "latency_ms": { "p50": 1.24, "p99": 56.2 }
    })
}

/// Half an hour in which the lag has grown and fallen three times.
fn history() -> Value {
    let sample = |number: u64| {
        let lag_bytes = (number % 12) * 200_000;
        json!({ "lag_bytes": lag_bytes, "lag_seconds": 0.1, "published_per_second": 14_000.0 })
    };
    json!({ "interval_seconds": 5, "samples": (0..360).map(sample).collect::<Value>() })
}

fn blocked() -> Value {
    let down = json!({ "code": "sink_down", "text": "the sink has taken no event for 4 s" });
    let mut status = streaming();
    status["state"] = "blocked".into();
    status["ready"] = false.into();
    status["reason"] = down.clone();
    status["reasons"] = json!([
        { "code": "broker_silent", "text": "the broker has not confirmed 128 events for 31 s" }, down
    ]);
    status["rates"]["published_per_second"] = 0.into();
    status["rates"]["retries_per_second"] = 0.25.into();
    status["latency_ms"] = Value::Null;
    status["slot"]["safe_wal_bytes"] = Value::Null;
    status["slot"]["wal_status"] = "extended".into();
    status["slot"]["pinned_by"] = json!({
        "kind": "transaction", "pid": 4711, "age_seconds": 7_200,
        "text": "a transaction of pid 4711 is open for 2 h; end it: SELECT pg_terminate_backend(4711)"
    });
    status["slot"]["idle_timeout"] = json!({ "text": "nobody has read slot walrelay for 5 min" });
    status
}

fn unreachable() -> Fault {
    let mend = "ss -ltnp 'sport = :9464'\nstart it: walrelay run";
    let what = "the relay does not answer: Connection refused (os error 111)";
    Fault::new(crate::base::error::Exit::Failed, "status.unreachable", what, "http://c:9464", mend)
}

fn drawn(relays: &[AskedRelay], style: &ScreenStyle) -> String {
    draw(relays, style).iter().map(|line| format!("{line}\n")).collect()
}

#[track_caller]
fn assert_drawn(relays: &[AskedRelay], style: &ScreenStyle, wanted: &str) {
    let drawn = drawn(relays, style);
    assert!(drawn == wanted.trim_start_matches('\n'), "\n{drawn}");
    if !style.is_plain {
        let too_long = drawn.lines().find(|line| line.chars().count() > style.columns);
        assert_eq!(too_long, None);
    }
}

#[test]
fn several_relays_are_shown_with_what_is_wrong() {
    let relays = [
        relay("a", Ok(streaming()), history()),
        relay("b", Ok(blocked()), history()),
        relay("c", Err(unreachable()), Value::Null),
    ];
    assert_drawn(
        &relays,
        &TERMINAL,
        r"
● streaming for 14 min · since 2026-11-25T01:02:03Z · a:9464
  slot walrelay · to kafka · up 3 h 2 min · walrelay 0.1.0
  lag          1.2 MiB, 0.8 s         ▁▂▂▃▃▃▅▅▅▇▇▇▁▂▂▃▃▃▅▅▅▇▇▇  max 2.1 MiB
  published    12,346/s               ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  max 14,000/s
  latency      p50 1.2 ms, p99 56 ms
  in flight    128 of 256 events, 4.0 MiB
  retries      12
  dead letters 3 open, oldest 1 h 2 min, 0.1/s, 2 keys parked
  WAL          1.0 GiB retained, 9.0 GiB more are safe

● blocked for 14 min, not ready · since 2026-11-25T01:02:03Z · b:9464
  slot walrelay · to kafka · up 3 h 2 min · walrelay 0.1.0
  ! sink_down: the sink has taken no event for 4 s
  ! broker_silent: the broker has not confirmed 128 events for 31 s
  lag          1.2 MiB, 0.8 s         ▁▂▂▃▃▃▅▅▅▇▇▇▁▂▂▃▃▃▅▅▅▇▇▇  max 2.1 MiB
  published    0/s                    ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  max 14,000/s
  latency      nothing published within 10 s
  in flight    128 of 256 events, 4.0 MiB
  retries      12, 0.2/s
  dead letters 3 open, oldest 1 h 2 min, 0.1/s, 2 keys parked
  WAL          1.0 GiB retained, without limit, wal_status extended
  pinned by    a transaction of pid 4711 is open for 2 h; end it: SELECT
               pg_terminate_backend(4711)
  idle         nobody has read slot walrelay for 5 min

✗ no answer · c:9464
  error[status.unreachable]: the relay does not answer: Connection refused (os
    error 111)
    where: http://c:9464
    help:  ss -ltnp 'sport = :9464'
           start it: walrelay run

ready: 1 of 3 relays
plots: the last 2 min, a mark for each 5 s
",
    );
}

#[test]
fn what_is_not_known_of_a_slot_is_called_unknown() {
    let mut status = streaming();
    status["slot"] = json!({
        "name": "walrelay", "active": null, "wal_status": null,
        "lag_bytes": { "received": null, "sent": null, "confirmed": null }, "lag_seconds": null,
        "retained_wal_bytes": null, "safe_wal_bytes": null
    });
    let screen = drawn(&[relay("relay-1", Ok(status.clone()), Value::Null)], &PIPE);
    assert!(screen.contains("  lag          unknown\n"), "{screen}");
    assert!(screen.contains("  WAL          unknown\n"), "{screen}");
    // GIVEN a relay that does not tell them at all
    status["slot"] = json!({ "name": "walrelay" });
    let screen = drawn(&[relay("relay-1", Ok(status.clone()), Value::Null)], &PIPE);
    assert!(!screen.contains("unknown"), "{screen}");
    // GIVEN a slot that has lost its WAL THEN nothing is told of a limit
    status["slot"] = json!({
        "name": "walrelay", "wal_status": "lost", "retained_wal_bytes": 0, "safe_wal_bytes": null
    });
    let screen = drawn(&[relay("relay-1", Ok(status), Value::Null)], &PIPE);
    assert!(screen.contains("  WAL          0 B retained, wal_status lost\n"), "{screen}");
}

#[test]
fn what_is_piped_is_ascii_and_not_wrapped() {
    let relays =
        [relay("b", Ok(blocked()), history()), relay("c", Err(unreachable()), Value::Null)];
    assert_drawn(
        &relays,
        &PIPE,
        r"
blocked for 14 min, not ready, since 2026-11-25T01:02:03Z, b:9464
  slot walrelay, to kafka, up 3 h 2 min, walrelay 0.1.0
  ! sink_down: the sink has taken no event for 4 s
  ! broker_silent: the broker has not confirmed 128 events for 31 s
  lag          1.2 MiB, 0.8 s         .::---===###.::---===###  max 2.1 MiB
  published    0/s                    ########################  max 14,000/s
  latency      nothing published within 10 s
  in flight    128 of 256 events, 4.0 MiB
  retries      12, 0.2/s
  dead letters 3 open, oldest 1 h 2 min, 0.1/s, 2 keys parked
  WAL          1.0 GiB retained, without limit, wal_status extended
  pinned by    a transaction of pid 4711 is open for 2 h; end it: SELECT pg_terminate_backend(4711)
  idle         nobody has read slot walrelay for 5 min

no answer, c:9464
  error[status.unreachable]: the relay does not answer: Connection refused (os error 111)
    where: http://c:9464
    help:  ss -ltnp 'sport = :9464'
           start it: walrelay run

ready: 0 of 2 relays
plots: the last 2 min, a mark for each 5 s
",
    );
}

#[test]
fn a_relay_that_polls_has_rows_instead_of_wal() {
    let mut status = streaming();
    status["state"] = "polling".into();
    status["slot"] = Value::Null;
    status["polling"] = json!({ "backlog": 12_345, "backlog_age_seconds": 75.2 });
    assert_drawn(
        &[relay("relay-1", Ok(status), Value::Null)],
        &TERMINAL,
        r"
● polling for 14 min · since 2026-11-25T01:02:03Z · relay-1:9464
  polls its table · to kafka · up 3 h 2 min · walrelay 0.1.0
  lag          12,345 rows, oldest 1 min
  published    12,346/s
  latency      p50 1.2 ms, p99 56 ms
  in flight    128 of 256 events, 4.0 MiB
  retries      12
  dead letters 3 open, oldest 1 h 2 min, 0.1/s, 2 keys parked
",
    );
    let one = json!({ "backlog": 1, "backlog_age_seconds": 48.2 });
    assert_eq!(backlog(&one).as_deref(), Some("1 row, oldest 48 s"));
}

#[test]
fn an_answer_of_another_version_is_drawn_as_far_as_it_goes() {
    let status = json!({ "state": "streaming", "ready": true, "slot": { "name": "s" }, "events": { "published": 7 } });
    assert_drawn(
        &[relay("old", Ok(status), json!({ "samples": 5 }))],
        &TERMINAL,
        r"
● streaming · old:9464
  slot s
  published    7 in all
  dead letters open ones are not known
",
    );
    let drawn = drawn(&[relay("odd", Ok(json!({ "state": "new" })), Value::Null)], &TERMINAL);
    assert!(drawn.starts_with("● new, not ready · odd:9464\n"), "{drawn}");
}

#[test]
fn texts_of_the_answer_cannot_move_the_cursor() {
    let mut status = blocked();
    status["state"] = "\x1b[2Jready".into();
    status["slot"]["name"] = "a\nb".into();
    status["note"] = "\u{202e}c\x07".into();
    status["slot"]["pinned_by"]["text"] = "\x1b]0;x\x07".into();
    let drawn = drawn(&[relay("b", Ok(status), history())], &TERMINAL);
    assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()), "{drawn}");
    assert!(!drawn.contains('\u{202e}'), "{drawn}");
    assert!(drawn.contains("slot a\\nb"), "{drawn}");
}

#[test]
fn colours_change_no_text() {
    let coloured = ScreenStyle { is_coloured: true, ..TERMINAL };
    let relays = [
        relay("a", Ok(streaming()), history()),
        relay("b", Ok(blocked()), history()),
        relay("c", Err(unreachable()), Value::Null),
    ];
    let text = drawn(&relays, &coloured);
    assert!(
        text.contains("\x1b[1;32m● streaming\x1b[0m") && text.contains("\x1b[1;31m● blocked"),
        "{text}"
    );
    let mut plain = String::new();
    for (at, part) in text.split('\x1b').enumerate() {
        plain += if at == 0 { part } else { part.split_once('m').unwrap().1 };
    }
    assert_eq!(plain, drawn(&relays, &TERMINAL));
}

#[test]
fn a_narrow_terminal_has_no_plots_and_a_wide_one_longer_ones() {
    let relays = [relay("b", Ok(blocked()), history())];
    for columns in [20, 40, 60, 79] {
        let text = drawn(&relays, &ScreenStyle { columns, ..TERMINAL });
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(columns), "{columns}\n{text}");
        assert_eq!(text.contains('▇'), columns == 79, "{text}");
    }
    let text = drawn(&relays, &ScreenStyle { columns: 300, ..TERMINAL });
    assert!(text.contains("plots: the last 10 min"), "{text}");
}

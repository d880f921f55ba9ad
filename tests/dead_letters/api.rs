//! The admin API of a running relay: what `walrelay dlq` does, over HTTP, behind a token.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayProcess;

use super::fixture::{DeadLetterFixture, held, ids};
use crate::support::{LIMIT, metric, on_both_brokers, until, wait_until};

pub(crate) const TOKEN: &str = "a-token-out-of-a-file";
const DELIVERY: &str = "attempts_max = 1\n";
const DEAD_LETTER: &str = "burst_max = 100000\n";
const LETTERS: u64 = 30;

on_both_brokers!(dead_letters_are_listed_replayed_and_discarded_over_http, rabbitmq in soak);

/// Sends a request with this first line; status and body of the answer.
pub(crate) fn request(
    admin: SocketAddr,
    first: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, Value) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let bearer =
        token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "{first} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{bearer}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
}

/// The body of an answer with 200.
#[track_caller]
pub(crate) fn get(relay: &RelayProcess, path: &str) -> Value {
    let (status, body) = request(relay.admin(), &format!("GET {path}"), Some(TOKEN), "");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Begins a job and waits for its end.
#[track_caller]
fn job(relay: &RelayProcess, action: &str, body: &str) -> Value {
    let first = format!("POST /api/dlq/{action}");
    let (status, begun) = request(relay.admin(), &first, Some(TOKEN), body);
    assert_eq!((status, begun["action"].as_str()), (202, Some(action)), "{begun}");
    until("the end of the job", LIMIT, || {
        let job = get(relay, "/api/dlq/job");
        (job["job"] == begun["job"] && !job["ended_at"].is_null()).then_some(job)
    })
}

fn listed(relay: &RelayProcess, query: &str) -> Vec<String> {
    ids(get(relay, &format!("/api/dlq{query}"))["dead_letters"].as_array().unwrap())
}

/// Lines of the target `audit` that the relay has written: all but when.
pub(crate) fn audit(relay: &RelayProcess) -> Vec<Value> {
    let said = std::fs::read_to_string(relay.log_file()).unwrap();
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "audit").collect()
}

fn dead_letters_are_listed_replayed_and_discarded_over_http(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "api", DELIVERY, DEAD_LETTER).with_token(TOKEN);
    let (name, lost) = (case.site.name.clone(), case.lost());
    let mut relay = case.relay();
    case.insert(&lost, 0..3, 0, LETTERS);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let letters = case.open();
    assert_eq!(letters.len() as u64, LETTERS);
    nobody_else_gets_in(&relay);
    // WHEN letters are looked at THEN they are what the command line shows
    assert_eq!(listed(&relay, ""), letters);
    let of_key = ids(&case.list(&["--key", "k1"]));
    assert_eq!(listed(&relay, &format!("?key=k1&topic={lost}")), of_key);
    let shown = get(&relay, &format!("/api/dlq/{}?payload=true", of_key[0]));
    let letter = &shown["dead_letters"][0];
    assert_eq!(
        (&letter["event_id"], &letter["state"]),
        (&of_key[0].as_str().into(), &"open".into())
    );
    assert!(letter["payload"].as_str().unwrap().contains("\"seq\""), "{letter}");
    // WHEN the route is made and one key is replayed THEN its events arrive, in order
    case.site.open_route(&lost);
    let done = job(&relay, "replay", r#"{"key":"k1","rate":"500/s","reason":"route made"}"#);
    let count = of_key.len();
    assert_eq!((&done["state"], &done["progress"]["done"]), (&"done".into(), &count.into()));
    let rest: Vec<String> = letters.iter().filter(|id| !of_key.contains(id)).cloned().collect();
    assert_eq!(listed(&relay, ""), rest);
    assert_eq!(listed(&relay, "?state=replayed"), of_key);
    let arrived = held(case.site.reader_of(&lost));
    case.judge(&lost, &arrived, &rest).assert_exact(0);
    assert_eq!(arrived.iter().map(|record| record.id.clone()).collect::<Vec<_>>(), of_key);
    // WHEN the rest is given up THEN nothing is open, and nothing more has arrived
    let done = job(&relay, "discard", r#"{"all":true}"#);
    assert_eq!((&done["state"], &done["progress"]["done"]), (&"done".into(), &rest.len().into()));
    assert_eq!(listed(&relay, ""), [] as [String; 0]);
    assert_eq!(case.open(), [] as [String; 0]);
    wait_until("the depth to fall", || metric(&relay, "outbox_dlq_depth") == Some(0.0));
    told(&relay, &of_key[0], count, rest.len());
    // THEN the relay has gone on meanwhile
    case.insert_one(&name, "k1", LETTERS);
    case.site.wait_confirmed(&mut relay, LIMIT);
    case.judge(&name, &held(case.site.reader()), &[]).assert_exact(0);
}

fn nobody_else_gets_in(relay: &RelayProcess) {
    let all = r#"{"all":true}"#;
    for (token, code) in
        [(None, "api.token-missing"), (Some("a-token-out-of-a-fil"), "api.token-wrong")]
    {
        for first in ["GET /api/dlq", "POST /api/dlq/replay", "POST /api/dlq/discard"] {
            let (status, body) = request(relay.admin(), first, token, all);
            assert_eq!((status, body["code"].as_str()), (401, Some(code)), "{first}: {body}");
        }
    }
    let (status, body) = request(relay.admin(), "GET /api/dlq/job", Some(TOKEN), "");
    assert_eq!((status, body["code"].as_str()), (404, Some("api.no-job")), "{body}");
}

/// Who did what, with which filter, to how many, is in the log; the token is not.
fn told(relay: &RelayProcess, shown: &str, replayed: usize, discarded: usize) {
    let ended = |line: &Value| line["action"] == "discard" && line["ended"] == "done";
    let lines = until("the last line", LIMIT, || {
        let lines = audit(relay);
        lines.iter().any(ended).then_some(lines)
    });
    let refused = &lines[0];
    assert!(refused["message"].as_str().unwrap().contains("a wrong token"), "{refused}");
    assert!(refused["who"].as_str().unwrap().starts_with("127.0.0.1:"), "{refused}");
    let of = |action: &'static str| lines.iter().filter(move |line| line["action"] == action);
    assert_eq!(of("show").map(|line| &line["id"]).collect::<Vec<_>>(), [shown]);
    for (action, filter, count, reason) in [
        ("replay", "key=k1 state=open", replayed, "route made"),
        ("discard", "state=open", discarded, ""),
    ] {
        let lines: Vec<&Value> = of(action).collect();
        assert_eq!(lines.len(), 3, "asked for, begun, ended: {lines:?}");
        for line in &lines {
            assert!(line["who"].as_str().unwrap().starts_with("token@127.0.0.1:"), "{line}");
            assert_eq!(line["filter"], filter, "{line}");
        }
        let with = |name: &str| lines.iter().filter(|line| !line[name].is_null()).count();
        assert_eq!((with("reason"), with("count"), with("ended")), (1, 2, 1), "{lines:?}");
        for line in lines {
            assert!(line["reason"].is_null() || line["reason"] == reason, "{line}");
            assert!(line["count"].is_null() || line["count"] == count, "{line}");
        }
    }
    let said = std::fs::read_to_string(relay.log_file()).unwrap();
    assert!(!said.contains(TOKEN), "the token was printed");
}

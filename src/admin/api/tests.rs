use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::http::header;
use serde_json::Value;

use super::super::Admin;
use super::super::tests::{exchange as exchange_text, letters_of, view};
use super::*;
use crate::base::secret::{Secret, SecretFile as _};
use crate::base::testing::TempFolder;
use crate::dead_letter::testing::{Spec, write};
use crate::sink::testing::MemoryBroker;
use crate::sink::{Broker, Disposition, Failure};

pub(super) const TOKEN: &str = "a-token-of-some-length";
const SECOND: i64 = 1_000_000;
const JSON_BODY: &str = "Content-Type: application/json\r\n";

/// A server, and letters at a broker.
pub(super) struct ApiFixture {
    pub(super) broker: MemoryBroker,
    pub(super) admin: Admin,
}

fn fixture_with(token: Option<&str>) -> ApiFixture {
    let broker = MemoryBroker::default();
    let (_recorder, view) = view(Some("relay"));
    let letters = letters_of(&broker, token);
    let admin = Admin::start("127.0.0.1:0".parse().unwrap(), &[], view, letters).unwrap();
    ApiFixture { broker, admin }
}

pub(super) fn fixture() -> ApiFixture {
    fixture_with(Some(TOKEN))
}

impl ApiFixture {
    /// `count` letters `e0`, `e1`, ... of the keys `k0` to `k2`, a second apart.
    fn write(&self, count: i64, parks_key: bool) {
        let mut sink = self.broker.open(None).unwrap();
        for n in 0..count {
            let (id, key, failed_unix_us) = (format!("e{n}"), format!("k{}", n % 3), n * SECOND);
            let (id, key) = (&*id, Some(&*key));
            write(&mut *sink, Spec { id, key, failed_unix_us, parks_key, ..Spec::default() });
        }
        sink.poll(Instant::now(), Duration::ZERO, &mut Vec::new());
    }

    /// Ids that have arrived where events go.
    fn arrived(&self) -> Vec<String> {
        let events = self.broker.arrived().into_iter().filter(|event| event.topic == "orders");
        events.map(|event| event.id).collect()
    }

    /// Sends a request with these headers; status, head and body of the answer.
    fn request(&self, first: &str, headers: &str, body: &str) -> (u16, String, Value) {
        exchange(self.admin.addr, first, headers, body)
    }

    pub(super) fn get(&self, path: &str) -> (u16, Value) {
        let (code, _, body) = self.request(&format!("GET {path}"), &bearer(TOKEN), "");
        (code, body)
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let headers = bearer(TOKEN) + JSON_BODY;
        let (code, _, body) = self.request(&format!("POST {path}"), &headers, body);
        (code, body)
    }

    /// The job once it has ended.
    fn ended_job(&self) -> Value {
        loop {
            let (_, job) = self.get("/api/dlq/job");
            if !job["ended_at"].is_null() {
                return job;
            }
        }
    }
}

pub(super) fn exchange(
    addr: SocketAddr,
    first: &str,
    headers: &str,
    body: &str,
) -> (u16, String, Value) {
    let (code, head, body) = exchange_text(addr, first, headers, body);
    (code, head, serde_json::from_str(&body).unwrap_or(Value::Null))
}

pub(super) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn ids(body: &Value) -> Vec<&str> {
    body["dead_letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["event_id"].as_str().unwrap())
        .collect()
}

#[test]
fn nobody_gets_in_without_the_token() {
    let fixture = fixture();
    let longer = format!("{TOKEN}x");
    let twice = bearer(TOKEN) + &bearer(TOKEN);
    for (headers, code) in [
        (String::new(), "api.token-missing"),
        ("Authorization: Basic YTpi\r\n".to_owned(), "api.token-missing"),
        ("Authorization: Bearer\r\n".to_owned(), "api.token-missing"),
        (format!("Cookie: token={TOKEN}\r\n"), "api.token-missing"),
        (twice, "api.token-missing"),
        (bearer("wrong"), "api.token-wrong"),
        (bearer(&TOKEN[..TOKEN.len() - 1]), "api.token-wrong"),
        (bearer(&longer), "api.token-wrong"),
    ] {
        for first in ["GET /api/dlq", "POST /api/dlq/replay", "DELETE /api/dlq/job", "GET /api/x"] {
            let (status, head, body) = fixture.request(first, &headers, "");
            assert_eq!((status, body["code"].as_str()), (401, Some(code)), "{first} {headers}");
            assert!(head.contains("www-authenticate: Bearer"), "{head}");
            assert!(!body.to_string().contains("token-of"), "{body}");
        }
    }
    let (status, _, _) = fixture.request("GET /api/dlq", &bearer(TOKEN).replace("Be", "be"), "");
    assert_eq!(status, 200);
}

#[test]
fn without_a_token_it_is_closed_and_says_which_key_opens_it() {
    for token in [None, Some("")] {
        let fixture = fixture_with(token);
        let (status, head, body) = fixture.request("GET /api/dlq", &bearer(""), "");
        assert_eq!((status, body["code"].as_str()), (403, Some("api.closed")), "{head}");
        assert!(body["where"] == "admin.token" && body["help"].as_str().unwrap().contains("admin"));
    }
    // THEN what needs no token stays open, and says whether one is configured
    for (token, is_open) in [(None, false), (Some(""), false), (Some(TOKEN), true)] {
        let fixture = fixture_with(token);
        let (status, _, body) = exchange(fixture.admin.addr, "GET /status", "", "");
        assert_eq!((status, &body["has_token"]), (200, &is_open.into()));
    }
}

#[test]
fn a_token_in_a_file_is_that_of_now_and_one_that_cannot_be_read_opens_nothing() {
    let folder = TempFolder::new();
    let path = folder.path().join("token");
    std::fs::write(&path, TOKEN).unwrap();
    let check = TokenCheck::new(Some(&Secret::of_file(&path).unwrap()));
    let answer = |token: &str| {
        let headers = [(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())];
        let checked = check.check(&headers.into_iter().collect(), ([127, 0, 0, 1], 1).into());
        checked.map_or_else(|error| error.into_response().status().as_u16(), |()| 200)
    };
    assert_eq!(answer(TOKEN), 200);
    let new = "another-token-of-some-length";
    std::fs::write(&path, format!("{new}\n")).unwrap();
    assert_eq!((answer(TOKEN), answer(new)), (401, 200));
    std::fs::write(&path, "short").unwrap();
    assert_eq!(answer("short"), 403);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(answer(new), 403);
}

#[test]
fn letters_are_listed_with_the_filters_of_the_command_line() {
    let fixture = fixture();
    fixture.write(6, false);
    let (code, body) = fixture.get("/api/dlq");
    assert_eq!((code, ids(&body)), (200, vec!["e0", "e1", "e2", "e3", "e4", "e5"]));
    assert_eq!((&body["matched"], &body["read"]["records"]), (&Value::from(6), &Value::from(6)));
    assert_eq!(body["dead_letters"][0]["error_class"], "unroutable");
    assert!(!body.to_string().contains("payload\""), "payloads are not listed");
    let (_, body) = fixture.get("/api/dlq?key=k1&since=1970-01-01T00%3A00%3A02Z");
    assert_eq!((ids(&body), &body["matched"]), (vec!["e4"], &Value::from(1)));
    let (_, body) = fixture.get("/api/dlq?text=NOBODY+wants&limit=2");
    assert_eq!((ids(&body), &body["matched"]), (vec!["e0", "e1"], &Value::from(6)));
    assert_eq!(ids(&fixture.get("/api/dlq?topic=elsewhere").1), Vec::<&str>::new());
}

#[test]
fn a_letter_is_shown_with_its_history_and_its_payload_on_request() {
    let fixture = fixture();
    fixture.write(2, false);
    let (code, body) = fixture.get("/api/dlq/e1");
    assert_eq!((code, ids(&body)), (200, vec!["e1"]));
    let letter = &body["dead_letters"][0];
    assert_eq!(letter["history"][0]["what"], "dead-lettered");
    assert_eq!(letter.get("payload"), None);
    let (_, body) = fixture.get("/api/dlq/e1?payload=true");
    assert_eq!(body["dead_letters"][0]["payload"], "payload");
    let (code, body) = fixture.get("/api/dlq/nothing");
    assert_eq!((code, body["code"].as_str()), (404, Some("dead-letter.unknown")));
    for (query, what) in [
        ("payload=perhaps", "payload is neither true nor false"),
        ("payload=true&limit=1", "payload is the only name that is known here"),
    ] {
        let (code, body) = fixture.get(&format!("/api/dlq/e1?{query}"));
        assert_eq!((code, body["what"].as_str()), (400, Some(what)));
    }
}

#[test]
fn a_replay_is_a_job_and_ends_with_its_outcome() {
    let fixture = fixture();
    fixture.write(6, false);
    let (code, body) = fixture.get("/api/dlq/job");
    assert_eq!((code, body["code"].as_str()), (404, Some("api.no-job")));
    // WHEN it is only tried THEN nothing is published
    let (code, body) = fixture.post("/api/dlq/replay", r#"{"key":"k0","dry_run":true}"#);
    assert_eq!((code, &body["matched"], fixture.arrived().len()), (200, &Value::from(2), 0));
    // WHEN it is done
    let (code, job) = fixture.post("/api/dlq/replay", r#"{"key":"k0","reason":"bound\nnow"}"#);
    assert_eq!((code, &job["job"], &job["action"]), (202, &Value::from(1), &"replay".into()));
    let job = fixture.ended_job();
    assert_eq!((job["state"].as_str(), &job["progress"]["done"]), (Some("done"), &Value::from(2)));
    assert_eq!((&job["error"], &job["reason"]), (&Value::Null, &"bound\\nnow".into()));
    assert!(job["by"].as_str().unwrap().starts_with("token@127.0.0.1:"), "{job}");
    assert_eq!(fixture.arrived(), ["e0", "e3"]);
    // THEN the rest is open, and the letter tells who it was
    let (_, body) = fixture.get("/api/dlq");
    assert_eq!(ids(&body), ["e1", "e2", "e4", "e5"]);
    let (_, body) = fixture.get("/api/dlq/e0");
    let step = &body["dead_letters"][0]["history"][1];
    assert_eq!(step["what"], "replayed");
    assert!(step["by"].as_str().unwrap().starts_with("token@127.0.0.1"), "{step}");
    // WHEN everything is given up
    let (code, job) = fixture.post("/api/dlq/discard", r#"{"all":true}"#);
    assert_eq!((code, &job["job"]), (202, &Value::from(2)));
    assert_eq!(fixture.ended_job()["progress"]["done"], 4);
    assert_eq!(ids(&fixture.get("/api/dlq").1), Vec::<&str>::new());
    assert_eq!(fixture.arrived().len(), 2);
}

#[test]
fn a_dry_run_says_why_dead_letters_cannot_be_replayed() {
    // GIVEN a dead letter with a value that is cut
    let fixture = fixture();
    fixture.write(1, false);
    let tried = |action: &str| {
        fixture.post(&format!("/api/dlq/{action}"), r#"{"all":true,"dry_run":true}"#).1
    };
    assert_eq!(tried("replay").get("unfit"), None);
    let mut sink = fixture.broker.open(None).unwrap();
    write(&mut *sink, Spec { value: "more than sixteen bytes", ..Spec::default() });
    sink.poll(Instant::now(), Duration::ZERO, &mut Vec::new());
    // THEN a replay is told of it, and a discard is not
    let told = tried("replay");
    let unfit = "1 dead letter cannot be replayed: the value is cut (1)";
    assert_eq!((&told["matched"], told["unfit"].as_str()), (&Value::from(2), Some(unfit)));
    assert_eq!(tried("discard").get("unfit"), None);
}

#[test]
fn a_job_acts_on_what_was_counted_and_on_nothing_else() {
    let fixture = fixture();
    fixture.write(3, false);
    // GIVEN somebody who has seen that it would be three
    let (_, seen) = fixture.post("/api/dlq/discard", r#"{"all":true,"dry_run":true}"#);
    assert_eq!(seen["matched"], 3);
    let until = seen["until"].as_str().unwrap();
    // WHEN one of them is resolved before he says so THEN nothing is done, and he is told
    let job = |expected: usize| format!(r#"{{"until":"{until}","expected":{expected}}}"#);
    assert_eq!(fixture.post("/api/dlq/discard", r#"{"id":"e1"}"#).0, 202);
    fixture.ended_job();
    assert_eq!(fixture.post("/api/dlq/discard", &job(3)).0, 202);
    let ended = fixture.ended_job();
    assert_eq!(ended["error"]["code"], "dead-letter.changed", "{ended}");
    assert_eq!(ids(&fixture.get("/api/dlq").1), ["e0", "e2"]);
    assert_eq!(fixture.post("/api/dlq/discard", &job(2)).0, 202);
    assert_eq!(fixture.ended_job()["progress"]["done"], 2);
}

#[test]
fn what_was_counted_is_told_by_times_that_stay_the_same() {
    let fixture = fixture();
    let counted = |body: &str| fixture.post("/api/dlq/discard", body).1;
    let time = |text: &Value| crate::base::time::parse_rfc3339(text.as_str().unwrap()).unwrap();
    // GIVEN an age, which another request would count from later
    let seen = counted(r#"{"since":"1h","dry_run":true}"#);
    let age = time(&seen["until"]) - time(&seen["since"]);
    assert!((3_600 * SECOND..3_700 * SECOND).contains(&age), "{seen}");
    // THEN what is told is a filter of the same time
    let since = &seen["since"];
    let again = counted(&serde_json::json!({ "since": since, "dry_run": true }).to_string());
    assert_eq!(&again["since"], since);
    assert!(counted(r#"{"all":true,"dry_run":true}"#).get("since").is_none());
}

#[test]
fn a_job_that_fails_says_why() {
    let fixture = fixture();
    fixture.write(1, false);
    let failure = Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: None,
        class: "unroutable".to_owned(),
        subject: "orders".to_owned(),
        reason: "no queue is bound".to_owned(),
        mend: "bind one".to_owned(),
    };
    fixture.broker.refuse("e0", failure);
    assert_eq!(fixture.post("/api/dlq/replay", r#"{"all":true}"#).0, 202);
    let job = fixture.ended_job();
    assert_eq!(job["state"], "failed", "{job}");
    assert_eq!(job["error"]["code"], "dead-letter.refused-again");
    assert!(job["error"]["help"].as_str().unwrap().contains("bind one"));
    assert_eq!(ids(&fixture.get("/api/dlq").1), ["e0"]);
}

#[test]
fn one_job_at_a_time_and_it_can_be_stopped() {
    let fixture = fixture();
    fixture.write(3, false);
    // GIVEN a broker that confirms nothing
    fixture.broker.set_silent(true);
    assert_eq!(fixture.post("/api/dlq/replay", r#"{"all":true}"#).0, 202);
    let (code, body) = fixture.post("/api/dlq/discard", r#"{"all":true}"#);
    assert_eq!((code, body["code"].as_str()), (409, Some("api.job-under-way")));
    // WHEN it is stopped THEN what is in flight settles first
    let (code, _, job) = fixture.request("DELETE /api/dlq/job", &bearer(TOKEN), "");
    assert_eq!((code, job["state"].as_str()), (202, Some("stopping")));
    fixture.broker.set_silent(false);
    let job = fixture.ended_job();
    assert_eq!(job["state"], "stopped", "{job}");
    let left = ids(&fixture.get("/api/dlq").1).len();
    assert_eq!(fixture.arrived().len() + left, 3, "what is delivered is resolved");
    assert_eq!(fixture.post("/api/dlq/discard", r#"{"all":true}"#).0, 202);
}

#[test]
fn the_end_of_the_process_settles_a_job() {
    let fixture = fixture();
    fixture.write(30, false);
    // GIVEN a job that would take a minute
    assert_eq!(fixture.post("/api/dlq/replay", r#"{"all":true,"rate":"30/min"}"#).0, 202);
    let ApiFixture { broker, admin, .. } = fixture;
    let api = Arc::clone(&admin.api);
    drop(admin);
    let job = api.jobs.last().unwrap().json();
    assert_eq!(job["state"], "stopped", "{job}");
    let resolved = broker.arrived().len() - 30 - job["progress"]["done"].as_u64().unwrap() as usize;
    assert_eq!(job["progress"]["done"], resolved);
}

#[test]
fn a_key_is_released_once_nothing_of_it_is_open() {
    let fixture = fixture();
    fixture.write(3, true);
    // WHEN all parked keys are asked for, whatever is open THEN they are listed
    let listed = || fixture.post("/api/dlq/release", r#"{"all":true,"force":true,"dry_run":true}"#);
    let (code, body) = listed();
    assert_eq!((code, &body["keys"]), (200, &serde_json::json!(["k0", "k1", "k2"])));
    // THEN a dry run is refused as the release is
    for body in [
        r#"{"key":"k1"}"#,
        r#"{"key":"k1","dry_run":true}"#,
        r#"{"all":true}"#,
        r#"{"all":true,"dry_run":true}"#,
    ] {
        let (code, answer) = fixture.post("/api/dlq/release", body);
        assert_eq!((code, answer["code"].as_str()), (409, Some("dead-letter.key-has-open")));
    }
    let (code, body) = fixture.post("/api/dlq/release", r#"{"key":"k1","force":true}"#);
    assert_eq!((code, &body["keys"]), (200, &serde_json::json!(["k1"])));
    for body in [r#"{"key":"k1"}"#, r#"{"key":"k1","dry_run":true}"#] {
        let (code, answer) = fixture.post("/api/dlq/release", body);
        assert_eq!((code, answer["code"].as_str()), (404, Some("dead-letter.not-parked")));
    }
    assert_eq!(listed().1["keys"], serde_json::json!(["k0", "k2"]));
}

#[test]
fn what_is_not_understood_is_refused_and_nothing_is_done() {
    let fixture = fixture();
    fixture.write(1, false);
    for query in ["limit=0", "limit=1001", "limit=x", "kye=1", "since=soon", "state=gone", "id=%zz"]
    {
        let (code, body) = fixture.get(&format!("/api/dlq?{query}"));
        assert_eq!(code, 400, "{query}: {body}");
    }
    // THEN of a name that is given twice no value is taken, in a query as in a body
    let (code, body) = fixture.get("/api/dlq?id=a&id=b");
    assert_eq!((code, body["what"].as_str()), (400, Some("\"id\" is given twice")));
    let twice = r#"{"dry_run":true,"dry_run":false,"key":"k0"}"#;
    for action in ["discard", "release"] {
        let (code, body) = fixture.post(&format!("/api/dlq/{action}"), twice);
        assert_eq!((code, body["what"].as_str()), (400, Some("\"dry_run\" is given twice")));
    }
    let (_, body) = fixture.get("/api/dlq?since=soon&state=gone");
    assert_eq!(
        (body["where"].as_str(), body["more"][0]["where"].as_str()),
        (Some("since"), Some("state"))
    );
    // THEN all names that are known are told
    let (_, listed) = fixture.get("/api/dlq?foo=1");
    let (_, job) = fixture.post("/api/dlq/replay", r#"{"foo":1}"#);
    for (answer, ends) in [(listed, ", `state`, `limit`"), (job, ", `any_destination`, `reason`")] {
        assert!(answer["what"].as_str().unwrap().ends_with(ends), "{answer}");
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"all":true,"id":"e0"}"#,
        r#"{"all":"yes"}"#,
        r#"{"id":7}"#,
        r#"{"id":"e0","limit":1}"#,
        r#"{"all":true,"rate":"fast"}"#,
        r#"{"all":true,"rate":5}"#,
        r#"{"id":""}"#,
    ] {
        let (code, answer) = fixture.post("/api/dlq/replay", body);
        assert_eq!(code, 400, "{body}: {answer}");
        assert!(answer["what"].is_string() && answer["help"].is_string(), "{answer}");
    }
    let reason = format!(r#"{{"all":true,"reason":"{}"}}"#, "x".repeat(501));
    assert_eq!(fixture.post("/api/dlq/discard", &reason).0, 400);
    for (action, body, what) in [
        ("discard", "{}", "neither a filter nor \"all\": true was given"),
        ("release", "{}", "neither a key nor \"all\": true was given"),
        ("release", r#"{"all":true,"key":"k0"}"#, "\"all\": true and a key contradict each other"),
        ("discard", r#"{"id":7}"#, "id: expected a text or an array of texts"),
        (
            "discard",
            r#"{"all":true,"expected":-1}"#,
            "invalid value: integer `-1`, expected a whole number from 0 on",
        ),
    ] {
        let (code, answer) = fixture.post(&format!("/api/dlq/{action}"), body);
        assert_eq!((code, answer["what"].as_str()), (400, Some(what)), "{body}");
    }
    assert_eq!(fixture.get("/api/dlq/job").0, 404, "no job was begun");
    assert_eq!(fixture.get("/api/else").0, 404);
}

#[test]
fn only_json_of_a_moderate_size_is_read() {
    let fixture = fixture();
    let form = bearer(TOKEN) + "Content-Type: application/x-www-form-urlencoded\r\n";
    let (code, _, body) = fixture.request("POST /api/dlq/replay", &form, "all=true");
    assert_eq!((code, body["code"].as_str()), (415, Some("api.not-json")));
    let (code, _, _) = fixture.request("POST /api/dlq/replay", &bearer(TOKEN), "{}");
    assert_eq!(code, 415);
    // WHEN it is announced as large THEN not a byte of it is read
    let large = bearer(TOKEN) + JSON_BODY + "Content-Length: 65537\r\n";
    let (code, _, body) = fixture.request("POST /api/dlq/replay", &large, "");
    assert_eq!((code, body["code"].as_str()), (413, Some("api.body-too-large")));
    // WHEN it is not THEN as much as may be is read
    let chunk = format!("10001\r\n{}\r\n", " ".repeat(0x10001));
    let chunked =
        bearer(TOKEN) + JSON_BODY + "Transfer-Encoding: chunked\r\nX-No: Content-Length\r\n";
    let (code, _, _) = fixture.request("POST /api/dlq/replay", &chunked, &chunk);
    assert_eq!(code, 413);
}

#[test]
fn nothing_is_changed_by_a_get() {
    let fixture = fixture();
    fixture.write(3, true);
    for path in ["replay", "discard", "release"] {
        let (code, _) = fixture.get(&format!("/api/dlq/{path}?all=true"));
        assert_eq!(code, 405, "{path}");
    }
    assert_eq!(fixture.get("/api/dlq/job").0, 404, "no job was begun");
    assert_eq!(ids(&fixture.get("/api/dlq").1), ["e0", "e1", "e2"]);
    let all = r#"{"all":true,"force":true,"dry_run":true}"#;
    let (_, body) = fixture.post("/api/dlq/release", all);
    assert_eq!(body["keys"].as_array().unwrap().len(), 3, "{body}");
}

//! Secrets and payloads with values that occur nowhere else, looked for in everything that the
//! process prints at its most talkative, while all goes well and while it does not.
//!
//! Logins that are refused at the same level: `server.rs`, `kafka_rights.rs`, `rabbitmq.rs`,
//! `rabbitmq_tls.rs`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use walrelay_harness::BrokerKind;
use walrelay_harness::collector::Collector;
use walrelay_harness::relay::{RelayProcess, get};

use crate::dead_letters::api::request;
use crate::dead_letters::fixture::DeadLetterFixture;
use crate::support::faults::CliFixture;
use crate::support::rabbitmq::{self, TlsServer};
use crate::support::{LIMIT, metric, on_both_brokers, shared_rabbitmq, until, wait_until};
use crate::traces::fixture::traced;

/// Every secret; long enough for a token.
pub(super) const SECRET: &str = "c4n4ry-s3cr3t-f0r-4ll";
const PAYLOAD: &str = "c4n4ry-p4yl04d";
/// The client's modules by name, too: the filter of a level alone would leave them out.
pub(super) const EVERYTHING: &str = "trace,librdkafka=trace,lapin=trace,lapin::channel=trace";
const PATHS: [&str; 6] = ["/", "/status", "/metrics", "/livez", "/readyz", "/history"];

on_both_brokers!(a_relay_prints_no_secret_and_no_payload, rabbitmq in soak);

#[track_caller]
pub(super) fn assert_hidden(place: &str, text: &str) {
    for canary in [SECRET, PAYLOAD] {
        let bytes = || canary.bytes().collect::<Vec<u8>>();
        // As bytes are printed for debugging, and in hexadecimal.
        let numbers = format!("{:?}", bytes()).replace(['[', ']'], "");
        let hex: String = bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        for form in [canary.to_owned(), numbers, hex] {
            let shown = text.lines().find(|line| line.contains(&form));
            assert!(shown.is_none(), "{place} shows {canary}: {}", shown.unwrap());
        }
    }
}

/// A relay whose configuration holds a secret wherever one may stand.
fn talkative(kind: BrokerKind, collector: &Collector) -> DeadLetterFixture {
    let mut case = DeadLetterFixture::on(kind, "canary", "attempts_max = 2\n", "");
    let config = &mut case.config;
    let headers = format!("headers = \"authorization={SECRET}\"");
    config.extra += &traced(&collector.url(), &headers);
    config.url = config.url.replace("postgres@", &format!("postgres:{SECRET}@"));
    assert!(config.url.contains(SECRET), "{}", config.url);
    config.env.push(("WALRELAY_LOG".into(), EVERYTHING.into()));
    match &mut config.rabbitmq {
        Some(target) => {
            shared_rabbitmq().add_user("canary", SECRET).unwrap();
            target.url = target.url.replace("guest:guest@", &format!("canary:{SECRET}@"));
            assert!(target.url.contains(SECRET), "{}", target.url);
        }
        None => {
            let secrets = ["sasl.password", "ssl.key.password", "ssl.keystore.password"];
            config.properties.extend(secrets.map(|name| (name.into(), SECRET.into())));
            config.properties.push(("debug".into(), "all".into()));
        }
    }
    case.with_token(SECRET)
}

/// Events that are published, that have no route, and that are too large.
fn insert(case: &DeadLetterFixture) {
    let of = |aggregate_type: &str, bytes: u32| {
        case.site.execute(&format!(
            "insert into outbox values (gen_random_uuid(), '{aggregate_type}', 'k', 'created',
             jsonb_build_object('seq', 1, 'x', '{PAYLOAD}' || repeat('y', {bytes})))"
        ));
    };
    of(&case.site.name, 1);
    of(&case.lost(), 1);
    of(&case.site.name, 5_000_000);
}

#[track_caller]
fn assert_answers_hide(relay: &RelayProcess, id: &str) {
    for path in PATHS {
        let answer = get(relay.admin(), path, Duration::from_secs(10)).unwrap();
        assert_hidden(path, &answer.body);
    }
    let one = format!("/api/dlq/{id}");
    let (by_id, by_key) = (format!("/api/find?id={id}"), "/api/find?key=k".to_owned());
    for path in ["/api/dlq".to_owned(), one, by_id, by_key] {
        let (status, body) = request(relay.admin(), &format!("GET {path}"), Some(SECRET), "");
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.to_string().contains(id), "{path}: {body}");
        assert_hidden(&path, &body.to_string());
    }
    let (status, body) = request(relay.admin(), "GET /api/nothing", Some(SECRET), "");
    assert_eq!(status, 404);
    assert_hidden("/api/nothing", &body.to_string());
}

fn a_relay_prints_no_secret_and_no_payload(kind: BrokerKind) {
    let collector = Collector::start().unwrap();
    let case = talkative(kind, &collector);
    let mut relay = case.relay();
    // WHEN it publishes, retries and gives up
    insert(&case);
    let settled =
        |outcome: &str| metric(&relay, &format!("outbox_events_total{{outcome=\"{outcome}\"}}"));
    wait_until("two settled one way or the other", || {
        settled("published") >= Some(1.0) && settled("dead_lettered") >= Some(1.0)
    });
    // WHEN the collector gets its header, and takes no span
    until("the header at the collector", LIMIT, || {
        let requests = collector.received().requests;
        requests
            .iter()
            .find_map(|it| it.header("authorization").filter(|it| *it == SECRET))
            .map(drop)
    });
    collector.answer(401);
    case.insert_one(&case.site.name, "k", 1);
    wait_until("a span that is refused", || relay.said("trace.not-exported"));
    // THEN nothing that it answers shows a canary
    let lost = case.list(&["--topic", &case.lost()]);
    let id = lost[0]["event_id"].as_str().unwrap();
    assert_answers_hide(&relay, id);
    // THEN no command does
    let url = relay.admin().to_string();
    let commands: [&[&str]; 12] = [
        &["check"],
        &["check", "--json"],
        &["config", "show"],
        &["slot", "show"],
        &["dlq", "list"],
        &["dlq", "show", id],
        &["status", "--url", &url],
        &["status", "--url", &url, "--json"],
        &["find", id],
        &["find", "--key", "k"],
        &["dlq", "replay", "--all"],
        &["init"],
    ];
    for words in commands {
        let ended = case.walrelay(words);
        assert_hidden(&words.join(" "), &ended.all());
    }
    // WHEN its connections break and it is stopped THEN nothing of its log does either
    case.site.terminate_walsender();
    relay.sigterm().unwrap();
    relay.wait_exit(LIMIT).unwrap();
    let log = std::fs::read_to_string(relay.log_file()).unwrap();
    assert_hidden("the log", &log);
    // It did log what the canaries were near to.
    let talkative = match kind {
        BrokerKind::Kafka => "\"target\":\"librdkafka\"",
        BrokerKind::RabbitMq => "\"code\":\"event.retried\"",
    };
    assert!(log.contains(talkative), "{}", relay.tail(5));
}

#[test]
#[ignore = "soak"]
fn a_kafka_that_is_not_trusted_learns_and_shows_no_password() {
    let mut scene = CliFixture::waiting("canary_kafka_tls");
    scene.env.push(("WALRELAY_LOG".into(), EVERYTHING.into()));
    // GIVEN a server that nobody trusts
    let authorities = rabbitmq::shared();
    let server = TlsServer::start(authorities, "server");
    let ca = authorities.file("other.crt");
    scene.sink = format!(
        "[sink.kafka]\nbrokers = \"localhost:{}\"\nproperties = {{ \
         \"security.protocol\" = \"SASL_SSL\", \"ssl.ca.location\" = {ca:?}, \
         \"sasl.mechanism\" = \"PLAIN\", \"sasl.username\" = \"relay\", \
         \"sasl.password\" = \"{SECRET}\", \"debug\" = \"all\" }}\n",
        server.port,
    );
    // THEN the faults of run and check say why, and nobody shows the password
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let check = scene.spawn(&["check"]);
    let ended = scene.assert_refused(5, "sink.unreachable", &[]);
    let checked = check.wait();
    for (place, ended, text) in [("run", &ended, &ended.err), ("check", &checked, &checked.out)] {
        assert_hidden(place, &ended.all());
        let (_, fault) = text.rsplit_once("no Kafka broker answered").expect(text);
        for words in ["certificate verify failed", "correct ssl.ca.location"] {
            assert!(flat(fault).contains(words), "{place}: {words:?} is missing in {fault}");
        }
    }
    // AND those who read topics say so, too
    let find = scene.walrelay(&["find", "--key", "1", "--within", "1s"]);
    let list = scene.walrelay(&["dlq", "list"]);
    for (place, ended, text) in [("find", &find, &find.out), ("dlq list", &list, &list.err)] {
        assert_hidden(place, &ended.all());
        let (_, fault) = text.rsplit_once("no Kafka broker answered").expect(text);
        assert!(flat(fault).contains("certificate verify failed"), "{place}: {fault}");
    }
    assert!(flat(&list.err).contains("correct ssl.ca.location"), "{}", list.err);
}

#[test]
fn a_password_file_and_the_password_of_a_key_stay_hidden_when_they_are_of_no_use() {
    let mut scene = CliFixture::waiting("canary_files");
    let file = |name: &str, mode: u32| {
        let path: PathBuf = scene.folder().join(name);
        std::fs::write(&path, format!("*:*:*:*:{SECRET}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // GIVEN a password file that others can read, one that is as it should be
    let files = [file("open", 0o644), file("closed", 0o600)];
    // AND a key that another password encrypts
    let key = scene.folder().join("key.pem");
    let words = ["genrsa", "-aes128", "-passout", "pass:another", "-out"];
    let made = Command::new("openssl").args(words).arg(&key).arg("2048").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    scene.sink.push_str(&format!(
        "properties = {{ \"security.protocol\" = \"SSL\", \"ssl.key.location\" = {key:?}, \
         \"ssl.key.password\" = \"{SECRET}\", \"debug\" = \"all\" }}\n"
    ));
    for path in files {
        scene.env = vec![("PGPASSFILE".into(), path), ("WALRELAY_LOG".into(), EVERYTHING.into())];
        for words in [&["run"][..], &["check"], &["config", "show"]] {
            let ended = scene.walrelay(words);
            assert_hidden(&words.join(" "), &ended.all());
            // THEN the key, or the file, is what the relay complains about
            assert!(ended.code != 0 || words[0] == "config", "{ended}");
        }
    }
}

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A stand-in for the relay: a shell script that gets `run --config FILE`.
fn stand_in(name: &str, script: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("walrelay-kit-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let binary = folder.join("relay.sh");
    std::fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    (binary, folder)
}

fn wait_said(relay: &RelayProcess, text: &str) {
    let began = Instant::now();
    while !relay.said(text) {
        assert!(began.elapsed() < LIMIT, "never said {text}: {}", relay.tail(10));
        std::thread::yield_now();
    }
}

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn the_file_has_every_part_and_quotes_what_it_must() {
    let mut config = RelayConfig::new("postgres://u:p\"w@h/db", "localhost:1");
    config.properties.push(("linger.ms".into(), "0".into()));
    config.source_extra = "binary = false".into();
    config.kafka_extra = "partitions = 3".into();
    config.extra = "[delivery]\nattempts_max = 2".into();
    let want = r#"[source]
url = "postgres://u:p\"w@h/db"
slot = "walrelay"
publication = "walrelay"
binary = false

[[source.outbox]]
table = "public.outbox"

[route]
topic = "outbox.event.${aggregatetype}"

[sink]
kind = "kafka"

[sink.kafka]
brokers = "localhost:1"
properties = { "linger.ms" = "0" }
partitions = 3

[admin]
listen = "127.0.0.1:9"

[delivery]
attempts_max = 2
"#;
    assert_eq!(config.toml(([127, 0, 0, 1], 9).into()), want);
    let null = RelayConfig::memory_sink("postgres://h/db").toml(([127, 0, 0, 1], 9).into());
    assert!(null.contains("kind = \"memory\"") && !null.contains("kafka"));
}

#[test]
fn a_process_is_started_heard_stopped_and_started_again() {
    // GIVEN a relay that says what it was given and exits 7 on SIGTERM
    let script = "trap 'exit 7' TERM; echo \"pid $$ args $1 $2\" >&2; cat $3 | head -1; \
                  while :; do sleep 0.01; done";
    let (binary, folder) = stand_in("life", script);
    let config = RelayConfig::new("postgres://x/y", "b:1");
    let mut relay = RelayProcess::start(&binary, &folder, config).unwrap();
    wait_said(&relay, &format!("pid {} args run --config", relay.pid()));
    wait_said(&relay, "[source]");
    assert!(relay.is_running());
    // WHEN it is told to stop, THEN its exit code is seen, and a dead pid is never signalled
    relay.sigterm().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 7);
    assert!(!relay.is_running() && relay.freeze().is_err());
    // WHEN it is started again and killed, THEN the signal is told
    relay.restart().unwrap();
    wait_said(&relay, &format!("pid {}", relay.pid()));
    relay.kill9().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), -9);
    let log = std::fs::read_to_string(relay.log_file()).unwrap();
    assert_eq!(log.matches("args run").count(), 2);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_frozen_process_does_not_move_until_thawed() {
    let (binary, folder) = stand_in("freeze", "exec sleep 60");
    let config = RelayConfig::memory_sink("postgres://x/y");
    let mut relay = RelayProcess::start(&binary, &folder, config).unwrap();
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    relay.freeze().unwrap();
    while state(relay.pid()) != 'T' {
        std::thread::yield_now();
    }
    relay.thaw().unwrap();
    while state(relay.pid()) == 'T' {
        std::thread::yield_now();
    }
    // WHEN its owner goes, THEN it goes too
    let pid = relay.pid();
    drop(relay);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn readiness_and_metrics_come_from_the_admin_server() {
    // GIVEN a relay that never answers, replaced by a server of ours on its admin address
    let (binary, folder) = stand_in("admin", "exec sleep 60");
    let config = RelayConfig::memory_sink("postgres://x/y");
    let mut relay = RelayProcess::start(&binary, &folder, config).unwrap();
    let listener = TcpListener::bind(relay.admin()).unwrap();
    let server = std::thread::spawn(move || {
        let answers = ["503 No\r\n\r\nbroker", "200 OK\r\n\r\nready", "200 OK\r\n\r\nup 1\n"];
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            write!(stream, "HTTP/1.1 {answer}").unwrap();
        }
    });
    // THEN a 503 is waited out and samples are read
    relay.wait_ready(LIMIT).unwrap();
    assert_eq!(relay.metrics().unwrap()["up"], 1.0);
    server.join().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn waiting_for_a_relay_that_ended_tells_what_it_said() {
    let (binary, folder) = stand_in("dead", "echo 'error[slot.missing]: gone' >&2; exit 3");
    let config = RelayConfig::memory_sink("postgres://x/y");
    let mut relay = RelayProcess::start(&binary, &folder, config).unwrap();
    let error = relay.wait_ready(LIMIT).unwrap_err().to_string();
    assert!(error.contains("ended with 3") && error.contains("slot.missing"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_rabbitmq_section_is_written() {
    let mut config = RelayConfig::rabbitmq("postgres://x/db", "amqp://u:p\"@h:1/%2f", "events");
    config.rabbitmq.as_mut().unwrap().extra = "queues = { all = \"#\" }".into();
    let text = config.toml(([127, 0, 0, 1], 9).into());
    let section = "[sink]\nkind = \"rabbitmq\"\n\n[sink.rabbitmq]\n\
                   url = \"amqp://u:p\\\"@h:1/%2f\"\nexchange = \"events\"\n\
                   queues = { all = \"#\" }\n";
    assert!(text.contains(section), "{text}");
}

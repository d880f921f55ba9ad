//! Records in the dead-letter topic that no relay of ours has written: those of another service with
//! the same names, and those of somebody who may write to the topic.

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::util::Timeout;
use walrelay_harness::{BrokerKind, proc};

use crate::dead_letters::api::{TOKEN, request};
use crate::dead_letters::fixture::{DeadLetterFixture, ids};
use crate::support::{LIMIT, shared_kafka, until, wait_until};

/// Writes dead letters with these headers beside those without which they were none.
fn forge(topic: &str, key: &str, letters: usize, headers: &[(&str, &[u8])]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", shared_kafka().bootstrap())
        .set("message.max.bytes", "2000000")
        .create()
        .unwrap();
    for number in 0..letters {
        let id = format!("forged-{number}");
        let own: [(&str, &[u8]); 2] = [("dlq-event-id", id.as_bytes()), ("dlq-error-class", b"x")];
        let given = own.iter().filter(|(name, _)| headers.iter().all(|(other, _)| other != name));
        let list = given.chain(headers).fold(OwnedHeaders::new(), |list, (key, value)| {
            list.insert(Header { key, value: Some(*value) })
        });
        let record = BaseRecord::to(topic).key(key).payload("{\"seq\": 1}").headers(list);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Timeout::After(LIMIT)).unwrap();
}

#[test]
fn another_service_of_the_same_names_parks_no_key_here() {
    let case = DeadLetterFixture::on(
        BrokerKind::Kafka,
        "shared_topic",
        "on_dead_letter = \"park_key\"\n",
        "",
    );
    let (name, dlq) = (case.site.name.clone(), format!("{}.dlq", case.site.name));
    let relay_name = format!("{name}@elsewhere");
    // GIVEN dead letters that park a key, of a slot of this name on another database system, from a
    // position on behind which all events of this one are
    let letter: [(&str, &[u8]); 5] = [
        ("dlq-relay", relay_name.as_bytes()),
        ("dlq-system", b"1"),
        ("dlq-parks-key", b"true"),
        ("dlq-lsn", b"0/1"),
        ("dlq-original-topic", name.as_bytes()),
    ];
    forge(&dlq, "k1", 3, &letter);
    // WHEN events of that key are written here
    let reader = case.site.reader();
    let mut relay = case.relay();
    let id = case.insert_one(&name, "k1", 1);
    case.site.wait_confirmed(&mut relay, LIMIT);
    // THEN they are published, and the own dead letters of this service say where they come from
    reader.wait_until(1, LIMIT);
    assert_eq!(case.open().len(), 3, "no dead letter of its own");
    let lost = case.insert_one(&case.lost(), "k2", 1);
    wait_until("a dead letter", || case.open().len() == 4);
    let own = case.list(&[&lost]);
    let system = case.site.value("select system_identifier from pg_control_system()");
    assert_eq!(own[0]["system"], system.as_str(), "{own:?}");
    // THEN check names the others
    case.walrelay(&["check"]).assert_says(&["dead letters of others: 3 of slot", "of system 1"]);
    println!("{id} was published");
}

#[test]
fn a_forged_letter_is_published_nowhere_and_a_forged_release_is_logged() {
    let mut case =
        DeadLetterFixture::on(BrokerKind::Kafka, "forged", "on_dead_letter = \"park_key\"\n", "");
    let (name, dlq) = (case.site.name.clone(), format!("{}.dlq", case.site.name));
    // GIVEN a configuration that leads to one topic
    case.config.topic = name.clone();
    let mut relay = case.relay();
    case.insert_one(&name, "k1", 1);
    case.site.wait_confirmed(&mut relay, LIMIT);
    // WHEN somebody writes a dead letter for another topic, and a release
    let other = format!("{name}.other");
    case.site.open_route(&other);
    let reader = case.site.reader_of(&other);
    forge(&dlq, "k9", 1, &[("dlq-original-topic", other.as_bytes())]);
    forge(&dlq, "k9", 1, &[("dlq-resolution", b"released"), ("dlq-relay", b"mallory")]);
    // THEN the log says who has released a key
    wait_until("the line of the release", || {
        let log = std::fs::read_to_string(relay.log_file()).unwrap();
        log.contains("dead-letter.released") && log.contains("mallory")
    });
    // THEN a replay does not go there, and a dry run says so
    let words = ["no route of the configuration leads to the destination (1)", "--any-destination"];
    for dry_run in [&["--dry-run"][..], &[]] {
        let ended = case.walrelay(&[&["dlq", "replay", "--all"][..], dry_run].concat());
        ended.assert_fault(1, "dead-letter.unfit", &words);
    }
    assert_eq!((reader.count(), ids(&case.list(&[]))), (0, vec!["forged-0".to_owned()]));
    // WHEN somebody insists THEN it does
    case.must(&["dlq", "replay", "--all", "--any-destination"]);
    reader.wait_until(1, LIMIT);
    assert_eq!(case.open(), Vec::<String>::new());
}

#[test]
fn letters_of_any_size_do_not_grow_the_process() {
    const LETTERS: usize = 200;
    // GIVEN dead letters whose headers have most of a megabyte
    let case = DeadLetterFixture::on(BrokerKind::Kafka, "forged_size", "", "").with_token(TOKEN);
    let (name, dlq) = (case.site.name.clone(), format!("{}.dlq", case.site.name));
    let (long, relay_name) = (vec![b'x'; 900_000], format!("{name}@host"));
    let letter: [(&str, &[u8]); 2] =
        [("dlq-error-class", &long), ("dlq-relay", relay_name.as_bytes())];
    forge(&dlq, "k1", LETTERS, &letter);
    // WHEN a relay starts, and the console lists them
    let relay = case.relay();
    let lists = |count: usize| {
        let (code, body) = request(relay.admin(), "GET /api/dlq?limit=1000", Some(TOKEN), "");
        (code == 200 && body["dead_letters"].as_array().unwrap().len() == count).then_some(())
    };
    until("the list", LIMIT, || lists(LETTERS));
    let memory = proc::memory(relay.pid()).unwrap();
    let peak_mb = (memory.peak_rss_bytes - memory.file_bytes) >> 20;
    println!("peak RSS without code {peak_mb} MB");
    assert!(peak_mb < 120, "{peak_mb} MB");
}

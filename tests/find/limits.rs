//! Tests of the parts that a search leaves out, and names.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use walrelay::base::template::Template;
use walrelay::sink::search::{SearchLimits, SearchReport, SearchRoute, SearchScope};
use walrelay_harness::consumer::create_topic;

use crate::sinks::kafka_log::{broker, producer, write};
use crate::support::LIMIT;
use crate::support::faults::{CliFixture, HALT, brokers};

/// Searches a topic for anything; also the number of records that were read.
fn search(topic: &str, records_max: u64, within: Duration) -> (SearchReport, u64) {
    let topic = Template::literal(topic);
    let route = SearchRoute { exchange: None, topic, key: None, partition: None };
    let stop = AtomicBool::new(false);
    let limits = SearchLimits { deadline: Instant::now() + within, records_max, stop: &stop };
    let scope = SearchScope { routes: &[route], dead_letters: None, from_unix_us: 0, limits };
    let mut count = 0;
    let report = broker().search(&scope, &mut |_| {
        count += 1;
        false
    });
    (report, count)
}

#[test]
fn what_a_limit_or_retention_leaves_out_of_a_topic_is_said() {
    const NAME: &str = "find-limits";
    create_topic(&brokers(), NAME, 2, &[]).unwrap();
    write(&producer(&[]), NAME, 1..21);
    let (report, count) = search(NAME, 1000, LIMIT);
    assert_eq!((report.searched, count), (vec![format!("topic {NAME}: 20 records")], 20));
    assert!(report.not_searched.is_empty(), "{:?}", report.not_searched);
    let (report, count) = search(NAME, 3, LIMIT);
    let rest =
        format!("the rest of topic {NAME}, behind 3 records: the limit of records was reached");
    assert_eq!((report.not_searched, count), (vec![rest], 3));
    let (report, count) = search(NAME, 1000, Duration::ZERO);
    assert!(report.not_searched[0].contains("the time limit was reached"), "{report:?}");
    assert_eq!(count, 0);
    // GIVEN records that retention has removed
    let config = ClientConfig::new().set("bootstrap.servers", brokers()).clone();
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(NAME, 0, Offset::Offset(2)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(admin.delete_records(&before, &AdminOptions::new())).unwrap();
    let (report, count) = search(NAME, 1000, LIMIT);
    let removed = format!("older records of topic {NAME}: they have been removed by retention");
    assert_eq!((report.not_searched, count), (vec![removed], 18));
}

#[test]
fn a_topic_that_is_compacted_is_named() {
    for (name, policy, is_named) in [
        ("find-compacted", "compact", true),
        ("find-compacted-2", "compact,delete", true),
        ("find-not-compacted", "delete", false),
    ] {
        create_topic(&brokers(), name, 1, &[("cleanup.policy", policy)]).unwrap();
        write(&producer(&[]), name, 1..3);
        let (SearchReport { searched, not_searched }, _) = search(name, 1000, LIMIT);
        assert_eq!(searched, [format!("topic {name}: 2 records")]);
        let removed = format!(
            "records of topic {name} that compaction has removed: it keeps the last one of a key"
        );
        assert_eq!(not_searched.first(), is_named.then_some(&removed), "{not_searched:?}");
    }
}

#[test]
fn what_the_login_or_the_publication_leaves_out_is_said() {
    let mut scene = CliFixture::ready("find_rights");
    scene.extra = HALT.into();
    let id = scene.insert("1", "{}");
    // GIVEN a publication that leaves the table out
    scene.sql("ALTER PUBLICATION walrelay DROP TABLE outbox");
    let ended = scene.walrelay(&["find", &id]);
    ended.assert_done().assert_says(&[
        ": unknown",
        "The publication leaves its table out",
        "publication walrelay leaves public.outbox out: its rows are not delivered",
    ]);
    // GIVEN a login with the rights of the relay, which need not include the table
    scene.sql("CREATE ROLE find_reader LOGIN REPLICATION");
    let url = scene.url.clone();
    scene.url = url.replacen("postgres://postgres@", "postgres://find_reader@", 1);
    assert_ne!(scene.url, url);
    let ended = scene.walrelay(&["find", &id]);
    assert_eq!(ended.code, 1, "{ended}");
    let grant = "GRANT SELECT ON \"public\".\"outbox\" TO \"find_reader\";";
    ended.assert_says(&[
        "no event with id",
        &format!("rows of public.outbox: this role may not read them: {grant}"),
    ]);
}

#[test]
fn a_cluster_that_cannot_be_reached_is_told_with_its_error() {
    // GIVEN a waiting event, any topic to look into, and no broker
    let mut scene = CliFixture::waiting("find_unreachable");
    scene.extra = HALT.into();
    let port = walrelay_harness::free_port().unwrap();
    scene.sink = format!("[sink.kafka]\nbrokers = \"127.0.0.1:{port}\"\n");
    let ended = scene.walrelay(&["find", "--key", "1", "--within", "2s"]);
    ended.assert_done().assert_says(&["they cannot be listed", "Connection refused"]);
    // THEN nothing is said of topics that nobody has seen
    assert!(!ended.out.contains("sees none"), "{ended}");
}

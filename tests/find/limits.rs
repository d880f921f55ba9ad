//! Tests of the parts that a search leaves out, and names.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::Producer as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use walrelay::base::template::Template;
use walrelay::sink::search::{SearchLimits, SearchReport, SearchRoute, SearchScope};
use walrelay_harness::consumer::create_topic;

use crate::sinks::kafka_log::{broker, producer, write};
use crate::support::LIMIT;
use crate::support::faults::{CliFixture, HALT, brokers};

/// Searches a partition for anything; also the number of records that were read.
fn search(topic: &str, key: Option<&str>, within: Duration) -> (SearchReport, u64) {
    let (topic, key) = (Template::literal(topic), key.map(|key| key.as_bytes().to_vec()));
    let partition = key.is_none().then_some(0);
    let stop = AtomicBool::new(false);
    let limits = SearchLimits { deadline: Instant::now() + within, stop: &stop };
    let routes = [SearchRoute { topic, key, partition }];
    let scope = SearchScope { routes: &routes, from_unix_us: 0, limits };
    let mut count = 0;
    let report = broker().search(&scope, &mut |_| count += 1);
    (report, count)
}

#[test]
fn what_a_limit_or_retention_leaves_out_of_a_partition_is_said() {
    const NAME: &str = "find-limits";
    create_topic(&brokers(), NAME, 2, &[]).unwrap();
    write(&producer(&[]), NAME, 1..21);
    // GIVEN a partition that the row names THEN no other is read
    let (report, in_first) = search(NAME, None, LIMIT);
    assert_eq!(report.searched, [format!("partition 0 of topic {NAME}: {in_first} records")]);
    assert!((1..20).contains(&in_first) && report.not_searched.is_empty(), "{report:?}");
    // GIVEN a key THEN the partition to which the producer sends it is read
    let (report, of_key) = search(NAME, Some("1"), LIMIT);
    assert!([in_first, 20 - in_first].contains(&of_key), "{report:?}");
    // GIVEN an empty key, which some partitioners spread THEN none is read
    let (report, count) = search(NAME, Some(""), LIMIT);
    let unknown = format!("topic {NAME}: the partition is not known");
    assert_eq!((report.not_searched, count), (vec![unknown], 0));
    let (report, count) = search(NAME, None, Duration::ZERO);
    assert!(report.not_searched[0].contains("the time limit was reached"), "{report:?}");
    assert_eq!(count, 0);
    // GIVEN records that retention has removed
    let config = ClientConfig::new().set("bootstrap.servers", brokers()).clone();
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(NAME, 0, Offset::Offset(1)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(admin.delete_records(&before, &AdminOptions::new())).unwrap();
    let (report, count) = search(NAME, None, LIMIT);
    let removed =
        format!("older records of partition 0 of topic {NAME}: retention has removed them");
    assert_eq!((report.not_searched, count), (vec![removed], in_first - 1));
}

#[test]
fn an_event_behind_an_open_transaction_of_another_producer_is_found() {
    const NAME: &str = "find-behind-transaction";
    create_topic(&brokers(), NAME, 1, &[]).unwrap();
    let other = producer(&[("transactional.id", NAME)]);
    other.init_transactions(LIMIT).unwrap();
    other.begin_transaction().unwrap();
    write(&other, NAME, 1..2);
    write(&producer(&[]), NAME, 2..4);
    let (report, count) = search(NAME, None, LIMIT);
    assert_eq!(report.searched, [format!("partition 0 of topic {NAME}: 3 records")]);
    assert_eq!((report.not_searched, count), (Vec::new(), 3));
    other.abort_transaction(LIMIT).unwrap();
}

#[test]
fn what_the_login_or_the_publication_leaves_out_is_said() {
    let mut scene = CliFixture::ready("find_rights");
    scene.extra = HALT.into();
    let id = scene.insert("1", "{}");
    // GIVEN a publication that leaves the table out
    scene.sql("ALTER PUBLICATION walrelay DROP TABLE outbox");
    let ended = scene.walrelay(&["find", &id]);
    assert_eq!(ended.code, 1, "{ended}");
    ended.assert_says(&[
        ": unknown",
        "the publication leaves its table out: it is not delivered",
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
        &format!("an event with id {id} may exist: neither rows nor topics could be searched"),
        &format!("rows of public.outbox: this role may not read them: {grant}"),
    ]);
}

#[test]
fn a_cluster_that_cannot_be_reached_is_told_with_its_error() {
    // GIVEN a waiting event, whose row says the topic, and no broker
    let mut scene = CliFixture::waiting("find_unreachable");
    scene.extra = HALT.into();
    let port = walrelay_harness::free_port().unwrap();
    scene.sink = format!("[sink.kafka]\nbrokers = \"127.0.0.1:{port}\"\n");
    let ended = scene.walrelay(&["find", "--key", "1", "--within", "2s"]);
    ended.assert_done().assert_says(&["no Kafka broker answered", "Connection refused"]);
}

//! Tests of the parts that a search leaves out, and names.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::Producer as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::json;
use walrelay::base::template::Template;
use walrelay::sink::search::{SearchLimits, SearchReport, SearchRoute, SearchScope};
use walrelay_harness::consumer::create_topic;

use super::says;
use crate::sinks::kafka_log::{broker, producer, write};
use crate::support::faults::{CliFixture, HALT, brokers};
use crate::support::{LIMIT, until};

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
    // GIVEN a schema that it may not use either THEN each right that is missing is named
    scene.sql("REVOKE USAGE ON SCHEMA public FROM PUBLIC");
    let on_schema = "GRANT USAGE ON SCHEMA \"public\" TO \"find_reader\";";
    let ended = scene.walrelay(&["find", &id]);
    ended.assert_says(&[&format!("this role may not read them: {on_schema} {grant}")]);
    scene.sql("GRANT SELECT ON public.outbox TO find_reader");
    let ended = scene.walrelay(&["find", &id]);
    ended.assert_says(&[&format!("this role may not read them: {on_schema}")]);
    assert!(!ended.all().contains("GRANT SELECT"), "{ended}");
}

#[test]
fn rows_of_several_tables_are_judged_each_by_its_own_record() {
    const KEY: &str = "77f1c0de-0000-4000-8000-000000000001";
    // GIVEN tables whose keys have different types, one of them with a row filter
    let mut scene = CliFixture::bare("find_tables");
    scene.sql(
        "CREATE TABLE public.audits (id int PRIMARY KEY, aggregateid uuid, region text, payload text);
         CREATE TABLE public.counts (id int PRIMARY KEY, aggregateid int, payload text);",
    );
    scene.source = r#"
        [[source.outbox]]
        table = "public.audits"
        where = "region <> 'test'"
        route = { topic = "find.tables.audits" }
        [[source.outbox]]
        table = "public.counts"
        route = { topic = "find.tables.counts" }
    "#
    .into();
    for topic in ["find.tables.audits", "find.tables.counts"] {
        scene.make_topic(topic, 2);
    }
    scene.walrelay(&["init"]).assert_done();
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.sql(&format!(
        "INSERT INTO audits VALUES (7001, '{KEY}', 'eu', 'x'), (7002, '{KEY}', 'test', 'x');
         INSERT INTO counts VALUES (7001, 7, 'x');"
    ));
    scene.wait_confirmed(&mut relay);
    let find = |words: &[&str]| {
        let ended = scene.walrelay(&[&["find", "--json"], words].concat());
        (ended.code, ended.json())
    };
    // Other tests write WAL in the meantime, which the slot has to pass first.
    let (code, answer) = until("the slot to pass the row", LIMIT, || {
        let (code, answer) = find(&["--key", KEY]);
        let mut events = answer["events"].as_array().unwrap().iter();
        let has_passed = events.all(|event| event["slot_passed"] == true);
        has_passed.then_some((code, answer))
    });
    // THEN the row that the filter excludes is not called published
    let [excluded, other] = &answer["events"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((code, &excluded["id"], &excluded["state"]), (1, &json!("7002"), &json!("unknown")));
    assert!(says(&excluded["text"], "the row filter of the publication"), "{answer}");
    assert_eq!((&other["id"], &other["state"]), (&json!("7001"), &json!("published")), "{answer}");
    // AND the table that cannot have the key leads nowhere
    for places in [&answer["searched"], &answer["not_searched"]] {
        assert!(!says(places, "find.tables.counts"), "{answer}");
    }
    // WHEN two tables have the id THEN each record is of the row that leads to its topic
    let (code, answer) = find(&["7001"]);
    let events = answer["events"].as_array().unwrap();
    assert_eq!((code, events.len()), (0, 2), "{answer}");
    for event in events {
        let table = event["row"]["table"].as_str().unwrap();
        let [record] = &event["published"].as_array().unwrap()[..] else { panic!("{answer}") };
        assert_eq!(record["topic"], table.replace("public.", "find.tables."), "{answer}");
        assert!(says(&event["text"], "rows of 2 tables have it"), "{answer}");
    }
    relay.stop();
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

use std::sync::atomic::AtomicBool;

use super::*;
use crate::search::search;
use crate::testing::cluster_with;
use walrelay_base::template::Template;
use walrelay_sink::search::{SearchLimits, SearchRoute, SearchScope};

const TOPIC: &str = "events";
const WITHIN: Duration = Duration::from_secs(20);
/// Far less, and far more than these partitions take.
const SOON: Duration = Duration::from_secs(8);

#[test]
fn a_partition_without_a_leader_does_not_keep_the_others_from_being_read() {
    let (cluster, settings) = cluster_with(TOPIC);
    let mut reader = open(&settings).unwrap();
    for id in [1, 0] {
        cluster.partition_leader(TOPIC, id, None).unwrap();
        let began = Instant::now();
        // This cluster finds no record by its time.
        assert_eq!(reader.read(TOPIC, 0, WITHIN, &mut |_| true), Ok(false));
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

#[test]
fn a_topic_counts_as_missing_only_if_it_stays_unknown() {
    let unknown = KafkaError::MetadataFetch(Code::UnknownTopicOrPartition);
    let deadline = Instant::now() + WITHIN;
    let (mut looks, mut missing_from) = (0, Some(deadline));
    // GIVEN a broker that knows the topic when it is asked for the third time
    let answer = topic_answer(&mut missing_from, deadline, || {
        looks += 1;
        if looks < 3 { Err(unknown.clone()) } else { Ok(()) }
    });
    assert_eq!((answer, looks), (Ok(()), 3));
    // WHEN that time is over THEN the next unknown topic is missing
    missing_from = Some(Instant::now());
    let answer: KafkaResult<()> = topic_answer(&mut missing_from, deadline, || {
        looks += 1;
        Err(unknown.clone())
    });
    assert_eq!((answer, looks), (Err(unknown.clone()), 4));
    // WHEN there is no time to ask again THEN it is missing as well
    let answer: KafkaResult<()> = topic_answer(&mut None, Instant::now(), || {
        looks += 1;
        Err(unknown.clone())
    });
    assert_eq!((answer, looks), (Err(unknown), 5));
    // THEN another error is no reason to ask again
    let timeout = KafkaError::MetadataFetch(Code::OperationTimedOut);
    let answer: KafkaResult<()> = topic_answer(&mut None, deadline, || Err(timeout.clone()));
    assert_eq!(answer, Err(timeout));
}

#[test]
fn the_command_that_gives_the_right_to_read_names_the_configured_brokers() {
    let forbidden = KafkaError::MessageConsumption(Code::TopicAuthorizationFailed);
    let told = reason(&forbidden, TOPIC, "a:1,b:2");
    assert!(told.contains("kafka-acls.sh --bootstrap-server a:1,b:2 --add "), "{told}");
}

#[test]
fn a_search_does_not_wait_for_a_leader() {
    let (cluster, settings) = cluster_with(TOPIC);
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let route = |partition| SearchRoute {
        topic: Template::literal(TOPIC),
        key: None,
        partition: Some(partition),
    };
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let limits = SearchLimits { deadline: began + WITHIN, stop: &stop };
    let scope = SearchScope { routes: &[route(1), route(0)], from_unix_us: 0, limits };
    let report = search(&settings, &scope, &mut |_| {});
    assert_eq!(report.not_searched, ["partition 1 of topic events: it has no leader"]);
    assert_eq!(report.searched, ["partition 0 of topic events: 0 records"]);
    assert_eq!(report.complete, [route(0)]);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_topic_of_which_a_partition_is_read_is_not_listed_as_one_that_was_not() {
    let (_cluster, settings) = cluster_with(TOPIC);
    let route = |partition| SearchRoute { topic: Template::literal(TOPIC), key: None, partition };
    let stop = AtomicBool::new(false);
    let limits = SearchLimits { deadline: Instant::now() + WITHIN, stop: &stop };
    // GIVEN routes to the topic, of which one leads to a partition
    let routes = [route(None), route(Some(0)), route(None)];
    let scope = SearchScope { routes: &routes, from_unix_us: 0, limits };
    let report = search(&settings, &scope, &mut |_| {});
    assert_eq!(report.searched, ["partition 0 of topic events: 0 records"]);
    let rest = "other partitions of topic events: the partition is not known";
    assert_eq!(report.not_searched, [rest]);
    assert_eq!(report.complete, [route(Some(0))]);
}

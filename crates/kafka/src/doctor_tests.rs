use rdkafka::mocking::MockCluster;

use super::*;
use walrelay_base::finding::faults;
use walrelay_sink::broker::UNREACHABLE;

#[test]
fn init_is_named_for_topics_that_it_creates_and_not_for_that_of_a_replay() {
    // GIVEN a cluster without topics, and a configuration that lists one
    let cluster = MockCluster::new(1).unwrap();
    let (brokers, topics) = (cluster.bootstrap_servers(), vec!["listed".to_owned()]);
    let settings = KafkaSettings { brokers, topics, ..KafkaSettings::default() };
    let broker = KafkaBroker { settings, learned: Arc::default() };
    let topics = vec!["orders".to_owned()];
    let mends = |required: &Requirements| -> Vec<(bool, bool)> {
        let found = inspect(&broker, required);
        let of = |fault: &Fault| {
            (fault.place.contains("orders"), fault.mend.starts_with("walrelay init"))
        };
        faults(&found).map(of).collect()
    };
    // WHEN the topic of a route is required, to which the rows that `check` reads lead as well
    let from_rows = topics.clone();
    let of_route = Requirements { topics, from_rows, ..Requirements::default() };
    assert_eq!(mends(&of_route), [(false, true), (true, true)]);
    // WHEN it is that of an event that is replayed
    let of_replay = Requirements { is_replay: true, ..of_route };
    assert_eq!(mends(&of_replay), [(false, true), (true, false)]);
}

#[test]
fn a_cluster_that_goes_silent_is_asked_for_one_topic_only() {
    // GIVEN a cluster that has answered
    let cluster = MockCluster::new(1).unwrap();
    let topics: Vec<String> = (0..5).map(|number| format!("topic-{number}")).collect();
    topics.iter().for_each(|topic| cluster.create_topic(topic, 1, 1).unwrap());
    let brokers = cluster.bootstrap_servers();
    let settings = KafkaSettings { brokers, topics, ..KafkaSettings::default() };
    let broker = KafkaBroker { settings, learned: Arc::default() };
    let (required, go_on) = (Requirements::default(), AtomicBool::new(false));
    let mut sink = open_checked(&broker, &required, &go_on).unwrap();
    // WHEN it answers no more
    cluster.broker_round_trip_time(1, Duration::from_secs(60)).unwrap();
    let began = Instant::now();
    let outcome = unusable_topics(&mut sink, &broker.settings, &required, &go_on);
    // THEN that is the fault, after one request
    assert_eq!(outcome.err().map(|fault| fault.code), Some(UNREACHABLE));
    let request = Duration::from_millis(TOPIC_REQUEST_MS.unsigned_abs().into());
    assert!(began.elapsed() < 2 * request, "{:?}", began.elapsed());
}

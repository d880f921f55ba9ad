use rdkafka::mocking::MockCluster;

use super::*;
use walrelay_sink::broker::UNREACHABLE;

#[test]
fn init_creates_what_the_configuration_names_and_not_what_rows_lead_to() {
    let both = ["configured", "orders"];
    let settings =
        KafkaSettings { topics: vec!["configured".to_owned()], ..KafkaSettings::default() };
    let mut required = Requirements::default();
    let listed = |required: &Requirements| both.map(|it| is_listed(it, &settings, required));
    // GIVEN topics of routes
    assert_eq!(listed(&required), [true, true]);
    // GIVEN those of events that are replayed
    required.from_rows = both.map(str::to_owned).to_vec();
    assert_eq!(listed(&required), [true, false]);
    // GIVEN topics of routes to which the rows that `check` reads lead as well
    assert_eq!(listed(&configured(&required)), [true, true]);
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

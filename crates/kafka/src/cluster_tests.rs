use super::*;

/// The result when the broker shows these one after another, the last one for ever; and how often
/// it was asked.
fn found(shown: Vec<KafkaResult<Vec<i32>>>, within: Duration) -> (KafkaResult<Vec<i32>>, usize) {
    let mut looks = 0;
    let found = leaders_of(2, Instant::now() + within, || {
        let now = shown[looks.min(shown.len() - 1)].clone();
        looks += 1;
        let partition =
            |(id, leader)| DescribedPartition { id, leader, is_in_sync: leader >= 0, replicas: 1 };
        now.map(|leaders| (0..).zip(leaders).map(partition).collect())
    });
    (found, looks)
}

fn refused(code: Code) -> KafkaResult<Vec<i32>> {
    Err(KafkaError::MetadataFetch(code))
}

#[test]
fn a_new_topic_is_waited_for_until_every_partition_has_a_leader() {
    let shown = vec![
        refused(Code::UnknownTopicOrPartition),
        refused(Code::LeaderNotAvailable),
        Ok(vec![1]),
        Ok(vec![1, -1]),
        refused(Code::BrokerTransportFailure),
        Ok(vec![1, 2]),
    ];
    assert_eq!(found(shown, CHANGE_WITHIN), (Ok(vec![0, 1]), 6));
}

#[test]
fn the_wait_for_a_new_topic_is_bounded_and_ends_where_the_login_may_not_look() {
    let (none, looks) = found(vec![Ok(vec![1, -1])], Duration::ZERO);
    assert_eq!((none, looks), (refused(Code::LeaderNotAvailable), 1));
    let (none, looks) = found(vec![refused(Code::TopicAuthorizationFailed)], CHANGE_WITHIN);
    assert_eq!((none, looks), (refused(Code::TopicAuthorizationFailed), 1));
}

#[test]
fn the_command_that_creates_a_missing_topic_has_the_configured_values() {
    let (brokers, code) = ("a:1,b:2".to_owned(), kafka::Code::UnknownTopicOrPartition);
    let settings = KafkaSettings { brokers, partitions: 2, ..KafkaSettings::default() };
    let missing = topic_unusable(code, &settings, "t", true);
    for fault in [missing, dead_letters_unusable(code, &settings, "t")] {
        let create = "kafka-topics.sh --bootstrap-server a:1,b:2 --create --topic t --partitions 2";
        assert!(fault.mend.starts_with(&format!("walrelay init, or: {create}")), "{fault}");
    }
}

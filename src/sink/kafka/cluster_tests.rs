use super::*;

/// The result when the broker shows these one after another, the last one for ever; and how often
/// it was asked.
fn found(shown: Vec<KafkaResult<Vec<i32>>>, within: Duration) -> (KafkaResult<Vec<i32>>, usize) {
    let mut looks = 0;
    let found = leaders_of(2, Instant::now() + within, || {
        let now = shown[looks.min(shown.len() - 1)].clone();
        looks += 1;
        let partition = |(id, leader)| DescribedPartition { id, leader, is_in_sync: leader >= 0 };
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
fn an_error_of_a_connection_leads_to_what_mends_it() {
    let verify = "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be verified, verify that ssl.ca.location is correctly configured";
    for (error, mend) in [
        (format!("sasl_ssl://localhost:9093/bootstrap: {verify}"), "correct ssl.ca.location"),
        (format!("ssl://kafka:9093/1: {verify}"), "correct ssl.ca.location"),
        (
            "sasl_ssl://kafka:9093/1: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?".into(),
            "correct security.protocol, ssl.ca.location, ssl.cert",
        ),
        (
            "ssl://kafka:9093/1: SSL handshake failed: unexpected message: client SSL authentication might be required".into(),
            "correct security.protocol, ssl.ca.location, ssl.cert",
        ),
        (
            "sasl_ssl://kafka:9093/1: SASL authentication error: Authentication failed".into(),
            "correct sasl.mechanism",
        ),
        (
            "kafka:9092/1: Disconnected: verify that security.protocol is correctly configured, broker might require SASL authentication".into(),
            "correct sasl.mechanism",
        ),
        (
            "sasl_ssl://kafka:9093/1: Connect to ipv4#127.0.0.1:9093 failed: Connection refused".into(),
            "start the broker",
        ),
        (
            "ssl://kafka-sasl:9093/1: Failed to resolve 'kafka-sasl:9093': Name or service not known".into(),
            "correct the host name",
        ),
        ("kafka-ssl:9092/1: Receive failed: Connection reset by peer".into(), "start the broker"),
        (Code::Resolve.to_string(), "correct the host name"),
        (Code::Authentication.to_string(), "correct sasl.mechanism"),
        (Code::OperationTimedOut.to_string(), "start the broker"),
    ] {
        assert!(reaching(&error).starts_with(mend), "{error}: {}", reaching(&error));
    }
}

use super::*;

fn of(code: Code) -> Failure {
    failure(code, "7", "orders", Some(b"42"), &ToolArguments::default())
}

#[test]
fn codes_have_stable_names_and_one_disposition() {
    let too_large = of(Code::MessageSizeTooLarge);
    assert_eq!(too_large.class, "kafka.message-size-too-large");
    assert_eq!(too_large.disposition, Disposition::Terminal);
    assert!(too_large.mend.contains("--entity-name orders"));
    assert_eq!(too_large.key.as_deref(), Some(&b"42"[..]));
    assert_eq!(of(Code::NotEnoughReplicas).disposition, Disposition::Outage);
    assert_eq!(of(Code::TopicAuthorizationFailed).disposition, Disposition::Transient);
    assert_eq!(of(Code::UnknownTopic).disposition, Disposition::Transient);
    assert!(of(Code::UnknownTopic).known);
    let unable = of(Code::UnsupportedCompressionType);
    assert_eq!(unable.disposition, Disposition::Halt);
    assert!(unable.mend.contains("sink.kafka.properties"), "{}", unable.mend);
}

#[test]
fn a_command_has_the_configured_values_and_init_is_enough_for_a_listed_topic() {
    let tools = ToolArguments { brokers: "a:1,b:2".to_owned(), partitions: 2 };
    let missing = |is_listed| mend(Code::UnknownTopic, "orders", &tools, is_listed);
    let create =
        "kafka-topics.sh --bootstrap-server a:1,b:2 --create --topic orders --partitions 2";
    assert_eq!(missing(true), format!("walrelay init, or: {create}"));
    let listed = "or list it in sink.kafka.topics and run: walrelay init";
    assert_eq!(missing(false), format!("{create}, {listed}"));
    assert_eq!(failure(Code::UnknownTopic, "7", "orders", None, &tools).mend, missing(false));
    for code in Code::ALL {
        let told = of(*code).mend;
        let is_whole =
            !told.contains(".sh") || told.contains(".sh --bootstrap-server HOST:PORT --");
        assert!(is_whole, "{told}");
    }
}

#[test]
fn an_answer_that_is_not_known_is_never_retried_in_silence() {
    for code in [Code::Unlisted, Code::GroupIdNotFound] {
        assert_eq!((of(code).disposition, of(code).known), (Disposition::Terminal, false));
    }
}

#[test]
fn classes_are_unique_and_a_missing_topic_has_one() {
    let missing = [Code::UnknownTopic, Code::UnknownTopicOrPartition, Code::UnknownTopicId];
    assert_eq!(missing.map(|code| of(code).class), ["kafka.unknown-topic"; 3]);
    let mut classes: Vec<String> = rows().into_iter().map(|row| row.class).collect();
    let all = classes.len();
    classes.sort();
    classes.dedup();
    assert_eq!(classes.len() + missing.len() - 1, all);
}

#[test]
fn a_record_that_is_too_large_is_told_with_the_limit_of_the_client_or_of_the_topic() {
    let of_topic = of(Code::MessageSizeTooLarge);
    let reason = "max.message.bytes of topic orders";
    assert!(of_topic.reason.contains(reason), "{}", of_topic.reason);
    let client = "\"message.max.bytes\" in sink.kafka.properties";
    for limit in [client, "--entity-name orders --add-config max.message.bytes="] {
        assert!(of_topic.mend.contains(limit), "{}", of_topic.mend);
    }
    let of_client = not_taken(Code::MessageSizeTooLarge, of_topic.clone());
    assert_eq!(of_client.reason, CLIENT_LIMIT);
    assert_eq!(of_client.mend, of_topic.mend);
    assert_eq!(not_taken(Code::UnknownTopic, of_topic.clone()).reason, of_topic.reason);
}

use super::*;

fn of(code: Code) -> Failure {
    failure(code, "7", "orders", Some(b"42"))
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
fn an_answer_that_is_not_known_is_never_retried_in_silence() {
    for code in [Code::Unknown, Code::GroupIdNotFound] {
        assert_eq!((of(code).disposition, of(code).known), (Disposition::Terminal, false));
    }
}

#[test]
fn classes_are_unique() {
    let mut classes: Vec<String> = rows().into_iter().map(|row| row.class).collect();
    let all = classes.len();
    classes.sort();
    classes.dedup();
    assert_eq!(classes.len(), all);
}

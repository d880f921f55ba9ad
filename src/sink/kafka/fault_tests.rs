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

/// A release of librdkafka with more codes turns this red: each wants a decision.
#[test]
fn every_code_of_the_library_is_decided() {
    let undecided: Vec<Code> = codes()
        .filter(|code| disposition(*code).is_none() && !is_of_other_requests(*code))
        .collect();
    assert_eq!(undecided, []);
    let twice: Vec<Code> = codes()
        .filter(|code| disposition(*code).is_some() && is_of_other_requests(*code))
        .collect();
    assert_eq!(twice, []);
}

/// Answers to consumers, administrators and transactions, and no answers at all.
#[rustfmt::skip]
fn is_of_other_requests(code: Code) -> bool {
    matches!(
        code,
        Code::Begin | Code::PartitionEOF | Code::UnknownGroup | Code::ExistingSubscription
        | Code::AssignPartitions | Code::RevokePartitions | Code::Conflict | Code::NoOffset
        | Code::KeyDeserialization | Code::ValueDeserialization | Code::Partial | Code::ReadOnly
        | Code::NoEnt | Code::Underflow | Code::InvalidType | Code::PollExceeded
        | Code::AssignmentLost | Code::Noop | Code::AutoOffsetReset | Code::LogTruncation
        | Code::End | Code::Unknown | Code::NoError | Code::OffsetOutOfRange
        | Code::OffsetMetadataTooLarge | Code::IllegalGeneration | Code::InconsistentGroupProtocol
        | Code::InvalidGroupId | Code::UnknownMemberId | Code::InvalidSessionTimeout
        | Code::RebalanceInProgress | Code::InvalidCommitOffsetSize
        | Code::GroupAuthorizationFailed | Code::TopicAlreadyExists | Code::InvalidPartitions
        | Code::InvalidReplicationFactor | Code::InvalidReplicaAssignment
        | Code::InvalidTransactionalState | Code::InvalidTransactionTimeout
        | Code::ConcurrentTransactions | Code::TransactionCoordinatorFenced
        | Code::OperationNotAttempted | Code::DelegationTokenOwnerMismatch
        | Code::DelegationTokenRequestNotAllowed | Code::InvalidPrincipalType | Code::NonEmptyGroup
        | Code::GroupIdNotFound | Code::FetchSessionIdNotFound | Code::InvalidFetchSessionEpoch
        | Code::TopicDeletionDisabled | Code::MemberIdRequired | Code::GroupMaxSizeReached
        | Code::FencedInstanceId | Code::ElectionNotNeeded | Code::NoReassignmentInProgress
        | Code::GroupSubscribedToTopic | Code::UnstableOffsetCommit | Code::ResourceNotFound
        | Code::DuplicateResource | Code::UnacceptableCredential | Code::InconsistentVoterSet
        | Code::InvalidUpdateVersion | Code::FeatureUpdateFailed | Code::FencedMemberEpoch
        | Code::UnreleasedInstanceId | Code::UnsupportedAssignor | Code::StaleMemberEpoch
        | Code::UnknownSubscriptionId | Code::TelemetryTooLarge | Code::EndAll
    )
}

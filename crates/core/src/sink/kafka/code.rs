//! The error codes of librdkafka, and what follows from each for an event.
//!
//! librdkafka itself retries, without end and in order, what a broker asks to be retried
//! (`message.timeout.ms=0`). So librdkafka does not try again what reaches the relay as failed; what
//! the relay does with it is decided here.

use std::fmt;

use crate::sink::publish::Disposition;

/// Rows of a name, its number, and librdkafka's text.
macro_rules! codes {
    ($($disposition:expr => { $($name:ident = $number:literal, $text:literal;)* })*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $($($name = $number,)*)*
            /// A number that is none of these.
            Unlisted = i32::MIN as isize,
        }

        impl Code {
            pub const ALL: &[Code] = &[$($(Code::$name,)*)*];

            /// The code of a number that a broker or its client has sent. A broker may be newer than this
            /// list.
            #[must_use]
            pub fn of(number: i32) -> Code {
                match number {
                    $($($number => Code::$name,)*)*
                    _ => Code::Unlisted,
                }
            }

            fn text(self) -> &'static str {
                match self {
                    $($(Code::$name => $text,)*)*
                    Code::Unlisted => "an answer that this version does not know",
                }
            }

            /// `None`: the code is not known as an answer to a publish.
            pub(super) fn disposition(self) -> Option<Disposition> {
                match self {
                    $($(Code::$name => $disposition,)*)*
                    Code::Unlisted => None,
                }
            }
        }
    };
}

codes! {
    // The event is to blame.
    Some(Disposition::Terminal) => {
        InvalidArgument = -186, "Local: Invalid argument or configuration";
        KeySerialization = -162, "Local: Key serialization error";
        ValueSerialization = -161, "Local: Value serialization error";
        InvalidMessage = 2, "Broker: Invalid message";
        InvalidMessageSize = 4, "Broker: Invalid message size";
        MessageSizeTooLarge = 10, "Broker: Message size too large";
        InvalidTopic = 17, "Broker: Invalid topic";
        MessageBatchTooLarge = 18, "Broker: Message batch larger than configured server segment size";
        PolicyViolation = 44, "Broker: Policy violation";
        InvalidRecord = 87, "Broker: Broker failed to validate record";
    }
    // The topic may still be created, given a partition, and the right granted; or another record of the batch was to
    // blame.
    Some(Disposition::Transient) => {
        Unknown = -1, "Unknown broker error";
        UnknownPartition = -190, "Local: Unknown partition";
        UnknownTopic = -188, "Local: Unknown topic";
        InvalidDifferentRecord = -138, "Local: an invalid record in the same batch caused the failure of this message too";
        UnknownTopicOrPartition = 3, "Broker: Unknown topic or partition";
        TopicAuthorizationFailed = 29, "Broker: Topic authorization failed";
        UnknownTopicId = 100, "Broker: Unknown topic id";
    }
    // The clock of this host, or that of the broker: a record has the time of its publish, and other
    // topics may have other limits.
    Some(Disposition::Delayed) => {
        InvalidTimestamp = 32, "Broker: Invalid timestamp";
    }
    // The cluster or the client cannot do what the settings ask for, whatever the event.
    Some(Disposition::Halt) => {
        BadCompression = -198, "Local: Invalid compressed data";
        UnknownProtocol = -171, "Local: Unknown protocol";
        NotImplemented = -170, "Local: Not implemented";
        UnsupportedFeature = -165, "Local: Required feature not supported by broker";
        NotConfigured = -145, "Local: Functionality not configured";
        InvalidRequiredAcks = 21, "Broker: Invalid required acks value";
        UnsupportedVersion = 35, "Broker: API version not supported";
        InvalidConfig = 40, "Broker: Configuration is invalid";
        UnsupportedForMessageFormat = 43, "Broker: Message format on broker does not support request";
        UnsupportedCompressionType = 76, "Broker: Unsupported compression type";
    }
    // The event is not to blame, and publishing may succeed later: the connection, also one on which an answer
    // cannot be read.
    Some(Disposition::Outage) => {
        BadMessage = -199, "Local: Bad message format";
        Underflow = -155, "Local: Read underflow";
        BrokerDestroy = -197, "Local: Broker handle destroyed for termination";
        Fail = -196, "Local: Communication failure with broker";
        BrokerTransportFailure = -195, "Local: Broker transport failure";
        Resolve = -193, "Local: Host resolution failure";
        AllBrokersDown = -187, "Local: All broker connections are down";
        NodeUpdate = -182, "Local: Broker node update";
        SSL = -181, "Local: SSL error";
        UnknownBroker = -146, "Local: Unknown broker";
        DestroyBroker = -137, "Local: Broker handle destroyed without termination";
        NetworkException = 13, "Broker: Broker disconnected before response received";
        InvalidRequest = 42, "Broker: Invalid request";
        RebootstrapRequired = 129, "Broker: Client metadata is stale, client should rebootstrap to obtain new metadata";
    }
    // Timeouts.
    Some(Disposition::Outage) => {
        MessageTimedOut = -192, "Local: Message timed out";
        OperationTimedOut = -185, "Local: Timed out";
        WaitingForCoordinator = -180, "Local: Waiting for coordinator";
        InProgress = -178, "Local: Operation in progress";
        PreviousInProgress = -177, "Local: Previous operation in progress";
        TimedOutQueue = -166, "Local: Timed out in queue";
        WaitCache = -164, "Local: Awaiting cache update";
        Interrupted = -163, "Local: Operation interrupted";
        Retry = -153, "Local: Retry operation";
        RequestTimedOut = 7, "Broker: Request timed out";
        CoordinatorLoadInProgress = 14, "Broker: Coordinator load in progress";
        CoordinatorNotAvailable = 15, "Broker: Coordinator not available";
        NotCoordinator = 16, "Broker: Not coordinator";
    }
    // The cluster.
    Some(Disposition::Outage) => {
        ISRInsufficient = -183, "Local: ISR count insufficient";
        LeaderNotAvailable = 5, "Broker: Leader not available";
        NotLeaderForPartition = 6, "Broker: Not leader for partition";
        BrokerNotAvailable = 8, "Broker: Broker not available";
        ReplicaNotAvailable = 9, "Broker: Replica not available";
        StaleControllerEpoch = 11, "Broker: StaleControllerEpochCode";
        NotEnoughReplicas = 19, "Broker: Not enough in-sync replicas";
        NotEnoughReplicasAfterAppend = 20, "Broker: Message(s) written to insufficient number of in-sync replicas";
        NotController = 41, "Broker: Not controller for cluster";
        KafkaStorageError = 56, "Broker: Disk error when trying to access log file on disk";
        LogDirNotFound = 57, "Broker: The user-specified log directory is not found in the broker config";
        ReassignmentInProgress = 60, "Broker: Partition reassignment is in progress";
        ListenerNotFound = 72, "Broker: No matching listener";
        FencedLeaderEpoch = 74, "Broker: Leader epoch is older than broker epoch";
        UnknownLeaderEpoch = 75, "Broker: Leader epoch is newer than broker epoch";
        StaleBrokerEpoch = 77, "Broker: Broker epoch has changed";
        OffsetNotAvailable = 78, "Broker: Leader high watermark is not caught up";
        PreferredLeaderNotAvailable = 80, "Broker: Preferred leader was not available";
        EligibleLeadersNotAvailable = 83, "Broker: Eligible partition leaders are not available";
        ThrottlingQuotaExceeded = 89, "Broker: Throttling quota has been exceeded";
    }
    // The login and its rights.
    Some(Disposition::Outage) => {
        Authentication = -169, "Local: Authentication failure";
        ClusterAuthorizationFailed = 31, "Broker: Cluster authorization failed";
        UnsupportedSASLMechanism = 33, "Broker: Unsupported SASL mechanism";
        IllegalSASLState = 34, "Broker: Request not valid in current SASL state";
        TransactionalIdAuthorizationFailed = 53, "Broker: Transactional Id authorization failed";
        SecurityDisabled = 54, "Broker: Security features are disabled";
        SaslAuthenticationFailed = 58, "Broker: SASL Authentication failed";
        DelegationTokenAuthDisabled = 61, "Broker: Delegation Token feature is not enabled";
        DelegationTokenNotFound = 62, "Broker: Delegation Token is not found on server";
        DelegationTokenAuthorizationFailed = 65, "Broker: Delegation Token authorization failed";
        DelegationTokenExpired = 66, "Broker: Delegation Token is expired";
        PrincipalDeserializationFailure = 97, "Broker: Request principal deserialization failed during forwarding";
    }
    // The state of the producer.
    Some(Disposition::Outage) => {
        State = -172, "Local: Erroneous state";
        Outdated = -167, "Local: Outdated";
        PurgeQueue = -152, "Local: Purged in queue";
        PurgeInflight = -151, "Local: Purged in flight";
        Fatal = -150, "Local: Fatal error";
        Inconsistent = -149, "Local: Inconsistent state";
        GaplessGuarantee = -148, "Local: Gap-less ordering would not be guaranteed if proceeding";
        Fenced = -144, "Local: This instance has been fenced by a newer instance";
        Application = -143, "Local: Application generated error";
        OutOfOrderSequenceNumber = 45, "Broker: Broker received an out of order sequence number";
        DuplicateSequenceNumber = 46, "Broker: Broker received a duplicate sequence number";
        InvalidProducerEpoch = 47, "Broker: Producer attempted an operation with an old epoch";
        InvalidProducerIdMapping = 49, "Broker: Producer attempted to use a producer id which is not currently assigned to its transactional id";
        UnknownProducerId = 59, "Broker: Unknown Producer Id";
        ProducerFenced = 90, "Broker: There is a newer producer with the same transactionalId which fences the current one";
    }
    // This process.
    Some(Disposition::Outage) => {
        CriticalSystemResource = -194, "Local: Critical system resource failure";
        FileSystem = -189, "Local: File or filesystem error";
        QueueFull = -184, "Local: Queue full";
    }
    // Only other requests return these codes, or none does.
    None => {
        PartitionEOF = -191, "Broker: No more messages";
        UnknownGroup = -179, "Local: Unknown group";
        ExistingSubscription = -176, "Local: Existing subscription";
        AssignPartitions = -175, "Local: Assign partitions";
        RevokePartitions = -174, "Local: Revoke partitions";
        Conflict = -173, "Local: Conflicting use";
        NoOffset = -168, "Local: No offset stored";
        KeyDeserialization = -160, "Local: Key deserialization error";
        ValueDeserialization = -159, "Local: Value deserialization error";
        Partial = -158, "Local: Partial response";
        ReadOnly = -157, "Local: Read-only object";
        NoEnt = -156, "Local: No such entry";
        InvalidType = -154, "Local: Invalid type";
        PollExceeded = -147, "Local: Maximum application poll interval (max.poll.interval.ms) exceeded";
        AssignmentLost = -142, "Local: Group partition assignment lost";
        Noop = -141, "Local: No operation performed";
        AutoOffsetReset = -140, "Local: No offset to automatically reset to";
        LogTruncation = -139, "Local: Partition log truncation detected";
        NoError = 0, "Success";
        OffsetOutOfRange = 1, "Broker: Offset out of range";
        OffsetMetadataTooLarge = 12, "Broker: Offset metadata string too large";
        IllegalGeneration = 22, "Broker: Specified group generation id is not valid";
        InconsistentGroupProtocol = 23, "Broker: Inconsistent group protocol";
        InvalidGroupId = 24, "Broker: Invalid group.id";
        UnknownMemberId = 25, "Broker: Unknown member";
        InvalidSessionTimeout = 26, "Broker: Invalid session timeout";
        RebalanceInProgress = 27, "Broker: Group rebalance in progress";
        InvalidCommitOffsetSize = 28, "Broker: Commit offset data size is not valid";
        GroupAuthorizationFailed = 30, "Broker: Group authorization failed";
        TopicAlreadyExists = 36, "Broker: Topic already exists";
        InvalidPartitions = 37, "Broker: Invalid number of partitions";
        InvalidReplicationFactor = 38, "Broker: Invalid replication factor";
        InvalidReplicaAssignment = 39, "Broker: Invalid replica assignment";
        InvalidTransactionalState = 48, "Broker: Producer attempted a transactional operation in an invalid state";
        InvalidTransactionTimeout = 50, "Broker: Transaction timeout is larger than the maximum value allowed by the broker's max.transaction.timeout.ms";
        ConcurrentTransactions = 51, "Broker: Producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing";
        TransactionCoordinatorFenced = 52, "Broker: Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the current coordinator for a given producer";
        OperationNotAttempted = 55, "Broker: Operation not attempted";
        DelegationTokenOwnerMismatch = 63, "Broker: Specified Principal is not valid Owner/Renewer";
        DelegationTokenRequestNotAllowed = 64, "Broker: Delegation Token requests are not allowed on this connection";
        InvalidPrincipalType = 67, "Broker: Supplied principalType is not supported";
        NonEmptyGroup = 68, "Broker: The group is not empty";
        GroupIdNotFound = 69, "Broker: The group id does not exist";
        FetchSessionIdNotFound = 70, "Broker: The fetch session ID was not found";
        InvalidFetchSessionEpoch = 71, "Broker: The fetch session epoch is invalid";
        TopicDeletionDisabled = 73, "Broker: Topic deletion is disabled";
        MemberIdRequired = 79, "Broker: Group member needs a valid member ID";
        GroupMaxSizeReached = 81, "Broker: Consumer group has reached maximum size";
        FencedInstanceId = 82, "Broker: Static consumer fenced by other consumer with same group.instance.id";
        ElectionNotNeeded = 84, "Broker: Leader election not needed for topic partition";
        NoReassignmentInProgress = 85, "Broker: No partition reassignment is in progress";
        GroupSubscribedToTopic = 86, "Broker: Deleting offsets of a topic while the consumer group is subscribed to it";
        UnstableOffsetCommit = 88, "Broker: There are unstable offsets that need to be cleared";
        ResourceNotFound = 91, "Broker: Request illegally referred to resource that does not exist";
        DuplicateResource = 92, "Broker: Request illegally referred to the same resource twice";
        UnacceptableCredential = 93, "Broker: Requested credential would not meet criteria for acceptability";
        InconsistentVoterSet = 94, "Broker: Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters";
        InvalidUpdateVersion = 95, "Broker: Invalid update version";
        FeatureUpdateFailed = 96, "Broker: Unable to update finalized features due to server error";
        FencedMemberEpoch = 110, "Broker: The member epoch is fenced by the group coordinator";
        UnreleasedInstanceId = 111, "Broker: The instance ID is still used by another member in the consumer group";
        UnsupportedAssignor = 112, "Broker: The assignor or its version range is not supported by the consumer group";
        StaleMemberEpoch = 113, "Broker: The member epoch is stale";
        UnknownSubscriptionId = 117, "Broker: Client sent a push telemetry request with an invalid or outdated subscription ID";
        TelemetryTooLarge = 118, "Broker: Client sent a push telemetry request larger than the maximum size the broker will accept";
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?} ({})", self.text())
    }
}

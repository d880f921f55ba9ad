//! Bugs that the simulation must catch. Each is one of the places where [`on`] is asked, and none is
//! there without the feature `mutants`, which is in no package.

#[cfg(feature = "mutants")]
use std::cell::Cell;

macro_rules! mutants {
    ($($name:ident: $what:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $what] $name,)*
        }

        impl Mutant {
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutant::$name => stringify!($name),)*
                }
            }

            /// A description of what the relay does with this mutant.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self {
                    $(Mutant::$name => $what,)*
                }
            }
        }
    };
}

mutants! {
    // What is reported to Postgres.
    AckNewest: "the newest confirm is reported, whatever is unconfirmed before it",
    AckBegin: "a transaction is reported when it begins",
    AckOnEnqueue: "an event counts as settled once the sink has taken it",
    AckBeforeLast: "a transaction is reported before its last event is confirmed",
    EmptySettles: "a transaction without events is reported, whatever is unconfirmed before it",
    KeepaliveInTransaction: "the position of a keepalive is reported inside a transaction",
    KeepaliveUnconfirmed: "the position of a keepalive is reported while events are unconfirmed",
    KeepaliveAfterRewind: "the position of a keepalive is reported although all before it is received again",
    ReportedAhead: "after a crash of Postgres the old position is reported before its WAL has come again",
    ReportsAfterFault: "a relay reports what settles after the slot has turned out to be another one",
    // Confirms, refusals, returns and dead letters.
    NackForgotten: "a refused event is forgotten",
    NackIsAck: "a refusal is taken for a confirm",
    BrokenForgotten: "a sink that has lost its state is used further",
    LetterBeforeConfirm: "a dead letter counts as settled before its confirm",
    ExhaustedForgotten: "an event without attempts left gets no dead letter",
    RewindForgotten: "what was in flight is not received again after the sink is rebuilt",
    NumbersReused: "what was confirmed under numbers that mean other events now is passed over",
    // Memory that crosses sessions: timelines, restores, crashes.
    SkipAcrossTimeline: "positions of one timeline are skipped on another one",
    SkipByLsnAlone: "transactions are skipped by position alone after a restore",
    FloorTimeRenewed: "a session that received nothing renews the time until which all before it was committed",
    ReportedTimeRenewed: "everything before a report that the slot has forgotten counts as committed until the session begins",
    WalEndUnchecked: "a WAL that ends before what was read is not noticed",
    OverlapUnseen: "a transaction that commits within the commit record of another counts as new",
    DroppedLetterParks: "a dead letter that was dropped and is in no topic goes on parking its key",
    EmptyTakenForKnown: "another transaction without events, in the place of one with events, is taken for that one",
    LastPlaceForgotten: "a process does not compare the slot with what the last one has read",
    // Peers.
    PeerConfirmsOnly: "after a peer only what it has confirmed counts, and what it has published is not received again",
    FirstFloorByPeers: "a relay without a session before goes on where it has seen a peer confirm, not where the slot stands",
    FloorByOwnReport: "after a peer a relay goes on where it has reported itself, not where the slot stands",
    TakeoverUnseen: "a peer that was there and may have had the slot counts for nothing",
    PeerByHolderOnly: "a move of the slot counts as a peer's only if that was seen to hold it",
    MoverUnchecked: "a slot that somebody has advanced is taken for a peer's",
    StandbyKeepsSink: "a relay that waits behind a peer keeps what is in flight",
    StopsBesidePeer: "a relay that stops without a session waits for the broker while a peer may publish",
    FollowsWithoutWithdrawal: "a session behind that of a peer is used while the sink has events in flight",
    LeaseNeverExpires: "a relay that hears nothing of its session publishes further",
    ShortSuspensionsForgotten: "only a suspension as long as the lease counts",
    FreezeUnnoticed: "the clock of the system does not show that a relay was frozen",
    SessionBegunWhenSeen: "a session lives from when the relay sees it, not from when it was opened",
    LeaseByOldBytes: "bytes that have waited in the socket prolong the lease from when they are read",
    LeaseByDeafWalsender: "a relay whose status updates do not arrive believes in its session as long as Postgres has it",
    LeaseByAnyAnswer: "a server that accepts no connection counts as a sign of the session",
    UnsignedTakenForOwn: "a position without a signature counts as reported by this relay, although it was not seen there and a peer is there",
    SendsAfterSession: "what waits is sent to the broker after the session has ended",
    ClosedUnseen: "a session that the server has closed counts as alive until it is read",
    ConfirmsAfterCrash: "a relay that stops without a session confirms its position although a crash of Postgres may have taken back a peer's trace",
    ConfirmsBehindPeer: "a relay that ends behind a peer confirms what it knows itself",
    PeerForgottenAfterFailover: "a relay does not remember on another timeline that it has a peer",
    FinalPositionUnsigned: "a relay that stops without a session confirms the position of a keepalive, like any other program",
    FoundBeforeCrash: "what a peer leaves before the position at which the slot was found first counts as older, also after a crash of Postgres",
    PeerForgottenInCrash: "a process does not know after a crash of Postgres that an earlier one has seen a peer",
    ReportsUnsigned: "relays report the end of a transaction, like any other relay",
    TraceForgotten: "a relay leaves no trace in the slot before it publishes",
    TraceNotAwaited: "events are published before Postgres has shown the trace",
    NoTraceNotAwaited: "events are published at once beside a peer where no position is free for a trace",
    TraceBehindUnseen: "a peer's trace behind what this relay has reported is not seen",
    TraceAhead: "a trace is left again before transactions of another history were seen",
    TraceNotRepeated: "a trace that may not have arrived is not left again",
    // Memory that crosses processes: marks, topics, parked keys, stops.
    MarkOnEnqueue: "an event is marked before it is confirmed",
    MarksOfOtherBroker: "marks are believed that another broker has confirmed",
    MarksAfterPeer: "marks are believed although another relay has had the slot",
    MarksAfterRestore: "marks are believed although a restore of Postgres may have taken back a peer's trace",
    MarksAfterCrash: "marks are believed although a crash of Postgres may have taken back a peer's trace",
    RunByPostmaster: "a crash of Postgres that the postmaster outlives is not noticed",
    MarksAfterReboot: "marks are believed after a restart of the machine",
    MarksOutOfOrder: "a mark counts although an earlier event of its key was published after it",
    MarkOverrulesTopic: "a mark counts although the topic does not hold the event",
    MarkedNotLookedUp: "the topic is not asked about an event that is marked",
    KnownBehindRepublished: "an event is passed over behind an earlier one of its key that is published again",
    TopicEndIgnored: "a record counts although its key ends with an earlier event",
    OverruledMarksKept: "marks that a topic has overruled are left to the next process",
    TopicsUnreadAfterPeer: "a relay that had the slot before takes over without a look at the topics",
    LettersUnreadAfterPeer: "the dead-letter topic is not read again after a peer had the slot",
    LettersUnreadAtStart: "events come in before the dead-letter topic is read",
    ParkedKeyPublished: "events of a parked key are published",
    DoubtForgotten: "a gap in the publication while no relay ran is not noticed",
    BreakerForgotten: "dead letters of earlier processes do not count for the breaker",
    // What stands, or is not bounded.
    SilentHoldsAll: "events of a destination that does not answer stop all others",
    RefusalIsOutage: "a refused event is taken for an outage, and the sink is rebuilt",
    WindowUnbounded: "the window takes any number of events",
    DrainInTransaction: "a relay that is stopped leaves the open transaction as it is",
    StopUnreported: "a relay that is stopped does not report what is confirmed",
    RetriesNeverDue: "an event that waits for another attempt gets none",
    // Sinks.
    KafkaTwoTopics: "events of a key are under way to two topics at once",
    KafkaOvertakesTroubled: "an event does not wait for older ones of its key that were refused",
    KafkaFatalUsedFurther: "a producer that has failed is used further",
    KafkaHeldNotParked: "an event that the sink holds when its key is parked is published",
    KafkaForbiddenForgotten: "a topic that the login may not write is taken for an outage",
    KafkaStoredBefore: "an event without an answer is published again although a later one of its key is confirmed",
    KafkaTopicAnewTrusted: "the partitions of a topic that was created again count as those of before",
    KafkaUnderWayForgotten: "events under way to a topic that was missing count for nothing",
    KafkaAnyPartition: "an event without a key goes to any partition of an open topic, also to one that was added",
    KafkaPurgeForgotten: "what waits in the client is published although it is withdrawn",
    RabbitReturnIsAck: "a returned message counts as confirmed once it is acked",
    RabbitReturnOfOldest: "a return is taken for that of the oldest message in flight on its channel",
    RabbitReturnForgotten: "a returned message is neither confirmed nor refused",
    RabbitNackIsAck: "a nack is taken for a confirm",
    RabbitNackForgotten: "a nack is not reported",
    RabbitMultipleIsSingle: "an answer to several messages is taken for one to the last of them",
    RabbitSingleIsMultiple: "an answer to one message is taken for one to all before it",
    RabbitRangeOneMore: "an answer to several messages counts for the one behind them, too",
    RabbitChannelIgnored: "an answer counts for the first channel, whatever channel it came on",
    RabbitTagsOfOldConnection: "answers on a new connection count for what was sent on the old one",
    RabbitLossIsConfirm: "what is in flight on a lost connection counts as confirmed",
    RabbitLossForgotten: "what is in flight on a lost connection is not sent again",
    RabbitSuspectsTogether: "after a close over a message all are sent together again",
    RabbitCloseBlamesFirst: "a close over a message is taken for one over the oldest in flight",
    RabbitMissingExchangeForgotten: "a close over a missing exchange names no message",
    RabbitRefusalForgotten: "a routing key that the login may not use is sent to again at once",
    RabbitDoubtfulFirst: "on a new connection what may have ended the last one is sent first",
    RabbitQueueFailureIsOutage: "a close over a stream that has failed is taken for an outage of the broker",
    RabbitMissingForEver: "an exchange that was missing once counts as missing as long as the connection lasts",
    RabbitBlockedForgotten: "a broker that takes no messages for now counts as one that does",
    RabbitUnblockedForgotten: "a broker that takes messages again is not noticed",
    RabbitReachableForgotten: "a broker that is back counts as away",
    RabbitSendsAfterLease: "what waits is published although the relay may have lost the slot",
    RabbitUnansweredForgotten: "a queue that does not answer holds up what is sent to others",
    RabbitChannelsMaxForgotten: "after a close over the number of channels as many are opened again",
    LaneGoesOn: "behind a refused event the next of its key is sent",
    LaneInParallel: "several events of a key are under way to a broker that may refuse one of them",
    SettledRepublished: "after a new sink what was confirmed behind an unsettled event is published again",
    InterruptForgotten: "after a broken session what was admitted of the open transaction is admitted again",
}

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Puts a bug into what this thread does from here on, or takes it out.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

/// Whether this bug is there.
#[cfg(feature = "mutants")]
#[must_use]
#[inline]
pub fn on(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether this bug is there.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn on(_mutant: Mutant) -> bool {
    false
}

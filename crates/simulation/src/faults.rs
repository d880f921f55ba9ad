//! Faults of a schedule.

use walrelay_core::base::random::Random;

use crate::options::SinkKind;

/// Each schedule has some of these, chosen by its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The process dies between any two of its effects.
    Kill,
    /// It is asked to stop.
    Stop,
    Freeze,
    ClockStep,
    MachineRestart,
    EndWalsender,
    ResetConnection,
    CutDown,
    CutUp,
    CutBoth,
    PostgresCrash,
    Failover,
    /// To a standby that has not got all.
    FailoverBehind,
    Restore,
    SlotAdvanced,
    SlotRecreated,
    /// The table is taken out of the publication for a while.
    Unpublished,
    /// Every relay is given another cluster, at its next start.
    OtherCluster,
    BrokerAway,
    SinkBroken,
    Refusals,
    SilentTopic,
    /// Connections to a cluster are lost, with the answers to what it has stored.
    AnswersLost,
    LeaderChanges,
    /// A partition has no leader, or one that does not answer.
    SilentPartition,
    /// Clients give themselves up, for no reason that lies in a record.
    ProducerFatal,
    /// With other partitions.
    TopicRecreated,
    /// Connections to RabbitMQ are lost, with the answers to what is stored; and logins are refused for
    /// a while, or not.
    AmqpConnectionLost,
    /// No byte gets through in one direction, or in both.
    AmqpHalfOpen,
    /// RabbitMQ takes no messages for a while.
    BrokerAlarm,
    /// A queue is deleted, or its binding, and declared again.
    QueueDeleted,
    /// A queue takes no more for a while, and nacks.
    QueueFull,
    ExchangeDeleted,
    ConfirmsLinger,
    /// The broker reads slowly: sockets of relays take little for a while.
    AmqpSocketFull,
}

impl FaultKind {
    /// Whether it can happen with this sink.
    pub(crate) fn happens_with(self, sink: SinkKind) -> bool {
        match self {
            FaultKind::SinkBroken => sink == SinkKind::Direct,
            FaultKind::AnswersLost
            | FaultKind::LeaderChanges
            | FaultKind::SilentPartition
            | FaultKind::ProducerFatal
            | FaultKind::TopicRecreated => sink == SinkKind::Kafka,
            FaultKind::AmqpConnectionLost
            | FaultKind::AmqpHalfOpen
            | FaultKind::BrokerAlarm
            | FaultKind::QueueDeleted
            | FaultKind::QueueFull
            | FaultKind::ExchangeDeleted
            | FaultKind::ConfirmsLinger
            | FaultKind::AmqpSocketFull => sink == SinkKind::Rabbitmq,
            _ => true,
        }
    }
}

/// All kinds of faults. Those of the broker come last, from [`FaultKind::BrokerAway`] on.
pub const FAULTS: [FaultKind; 35] = [
    FaultKind::Kill,
    FaultKind::Stop,
    FaultKind::Freeze,
    FaultKind::ClockStep,
    FaultKind::MachineRestart,
    FaultKind::EndWalsender,
    FaultKind::ResetConnection,
    FaultKind::CutDown,
    FaultKind::CutUp,
    FaultKind::CutBoth,
    FaultKind::PostgresCrash,
    FaultKind::Failover,
    FaultKind::FailoverBehind,
    FaultKind::Restore,
    FaultKind::SlotAdvanced,
    FaultKind::SlotRecreated,
    FaultKind::Unpublished,
    FaultKind::OtherCluster,
    FaultKind::BrokerAway,
    FaultKind::SinkBroken,
    FaultKind::Refusals,
    FaultKind::SilentTopic,
    FaultKind::AnswersLost,
    FaultKind::LeaderChanges,
    FaultKind::SilentPartition,
    FaultKind::ProducerFatal,
    FaultKind::TopicRecreated,
    FaultKind::AmqpConnectionLost,
    FaultKind::AmqpHalfOpen,
    FaultKind::BrokerAlarm,
    FaultKind::QueueDeleted,
    FaultKind::QueueFull,
    FaultKind::ExchangeDeleted,
    FaultKind::ConfirmsLinger,
    FaultKind::AmqpSocketFull,
];

impl FaultKind {
    /// Whether it concerns one of several destinations.
    pub(crate) fn leaves_others(self) -> bool {
        matches!(
            self,
            FaultKind::SilentTopic
                | FaultKind::QueueDeleted
                | FaultKind::QueueFull
                | FaultKind::ExchangeDeleted
        )
    }

    /// Which relay it concerns, for the story.
    pub(crate) fn target(self, relay: usize) -> String {
        match self {
            FaultKind::Kill
            | FaultKind::Stop
            | FaultKind::Freeze
            | FaultKind::ClockStep
            | FaultKind::MachineRestart => format!(" of relay {relay}"),
            _ => String::new(),
        }
    }
}

/// Some faults need others to do harm, and meet them where few others happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    All,
    /// Two relays that do not know of each other.
    Takeover,
    /// Faults of the memory that the next process finds.
    Memory,
    /// Faults of the history behind which Postgres has gone back.
    History,
    /// Faults of the answers of the broker.
    Broker,
}

impl Theme {
    pub(crate) const ALL: [Theme; 5] =
        [Theme::All, Theme::Takeover, Theme::Memory, Theme::History, Theme::Broker];

    pub(crate) fn faults(self) -> Vec<FaultKind> {
        match self {
            Theme::All => FAULTS.to_vec(),
            Theme::Takeover => vec![
                FaultKind::Kill,
                FaultKind::Freeze,
                FaultKind::EndWalsender,
                FaultKind::CutDown,
                FaultKind::CutUp,
                FaultKind::CutBoth,
                FaultKind::PostgresCrash,
                FaultKind::BrokerAway,
                FaultKind::SilentTopic,
                FaultKind::SilentPartition,
                FaultKind::AmqpHalfOpen,
                FaultKind::BrokerAlarm,
                FaultKind::AmqpSocketFull,
            ],
            Theme::Memory => vec![
                FaultKind::Kill,
                FaultKind::Stop,
                FaultKind::MachineRestart,
                FaultKind::PostgresCrash,
                FaultKind::OtherCluster,
                FaultKind::SinkBroken,
                FaultKind::ProducerFatal,
                FaultKind::SilentTopic,
                FaultKind::TopicRecreated,
                FaultKind::AmqpConnectionLost,
                FaultKind::ConfirmsLinger,
            ],
            Theme::History => vec![
                FaultKind::Kill,
                FaultKind::PostgresCrash,
                FaultKind::Failover,
                FaultKind::FailoverBehind,
                FaultKind::Restore,
                FaultKind::SlotAdvanced,
                FaultKind::CutBoth,
            ],
            Theme::Broker => {
                let of_broker = FAULTS.iter().skip_while(|it| **it != FaultKind::BrokerAway);
                [FaultKind::Kill, FaultKind::Stop].iter().chain(of_broker).copied().collect()
            }
        }
    }
}

/// Up to `most` of these kinds, of those that can happen with the sink.
pub(crate) fn some_of(
    mut kinds: Vec<FaultKind>,
    sink: SinkKind,
    most: u64,
    random: &mut Random,
) -> Vec<FaultKind> {
    kinds.retain(|kind| kind.happens_with(sink));
    let count = 1 + (random.number() % most) as usize;
    while kinds.len() > count {
        kinds.swap_remove((random.number() % kinds.len() as u64) as usize);
    }
    kinds
}

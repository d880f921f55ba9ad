//! What may go wrong in a schedule.

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
}

pub const FAULTS: [FaultKind; 22] = [
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
];

impl FaultKind {
    /// Which relay it concerns, for the story.
    pub(crate) fn concerns(self, relay: usize) -> String {
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
    /// What the next process finds.
    Memory,
    /// What Postgres has gone back behind.
    History,
}

impl Theme {
    pub(crate) const ALL: [Theme; 4] =
        [Theme::All, Theme::Takeover, Theme::Memory, Theme::History];

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
            ],
            Theme::Memory => vec![
                FaultKind::Kill,
                FaultKind::Stop,
                FaultKind::MachineRestart,
                FaultKind::PostgresCrash,
                FaultKind::OtherCluster,
                FaultKind::SinkBroken,
                FaultKind::SilentTopic,
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
        }
    }
}

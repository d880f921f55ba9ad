//! Short scripts of faults, in the order in which they do harm. A part of the seeds plays one; what is
//! around it, and how long each step lasts, stays random.

use std::time::Duration;

use clap::ValueEnum;
use walrelay_core::base::random::Random;
use walrelay_core::delivery::settings::OnDeadLetter;

use self::scripts::Script;
use crate::faults::FaultKind;
use crate::options::SinkKind;

mod brokers;
mod combined;
mod histories;
mod peers;
mod scripts;
mod takeovers;

/// One seed of so many plays a scenario before [`Scenario::Takeovers`]; one of so many others plays
/// [`Scenario::Takeovers`], with a remainder that leaves the schedules in `regressions` as they are.
/// [`Scenario::Combined`] and those behind it are played where they are wanted.
const ONE_OF: u64 = 8;
const TAKEOVERS_ONE_OF: u64 = 8;
const TAKEOVERS_REMAINDER: u64 = 3;

/// Faults in an order in which they do harm together, or in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
pub enum Scenario {
    /// Many events are refused, and few dead letters are allowed.
    Storm,
    /// Somebody advances the slot between two sessions.
    Moved,
    /// A restore, while no relay runs.
    RestoredUnseen,
    /// The table is unpublished for a while, no relay runs, and none remembers what it was.
    GapUnseen,
    /// A machine starts anew, and its broker has not written everything to disk.
    MachineLost,
    /// A peer repeats a part of what was published, and dies.
    PeerRepeats,
    /// A topic is made anew while no relay runs.
    TopicAnew,
    /// The state file has the last events of a key, and the topics cannot be read.
    PartlyKnown,
    /// A peer has published what the slot does not show.
    PeerUnconfirmed,
    /// Keys are parked, by a peer, too; the dead-letter topic is read late.
    LettersLate,
    /// The sink loses its state while events wait.
    SinkLost,
    /// A peer has had the slot for a moment, while this relay looked away.
    PeerUnseen,
    /// A relay is cut off from Postgres, but not from the broker.
    HostCut,
    /// A peer takes the slot while a topic does not answer.
    TakeoverInSilence,
    /// A restore, while a relay runs.
    RestoredSeen,
    /// A relay takes the slot, and the session ends before its trace has arrived.
    TraceLost,
    /// Postgres ends sessions before anything has come, and goes back.
    SessionsEmpty,
    /// Few records are stored while Postgres goes back.
    RestoredInSilence,
    /// A topic does not answer, or must not be written, and all else is well.
    OneTopic,
    /// A peer publishes and confirms what a relay has that stands still.
    PeerConfirms,
    /// Takeovers in any order.
    Takeovers,
    /// Faults of a few kinds in any order.
    Combined,
    /// A peer repeats a part while the relay looks away, before a crash of Postgres, or behind one.
    PeerInCrash,
    /// The last reports of a relay are lost, and its peer confirms the same position.
    LastReports,
    /// A relay without a session is asked to stop while the broker has not answered, and its peer publishes.
    StopsInFlight,
    /// A relay without a way to Postgres stands still, or its machine is suspended again and again.
    Suspensions,
    /// Relays take the slot from each other until no trace fits, and one is asked to stop.
    TracesUsedUp,
    /// Events wait in the RabbitMQ sink of a relay, and its peer publishes.
    WaitsInSink,
    /// Restores, and other transactions where others were that a relay has received.
    HistoryAnew,
    /// A crash of Postgres sets the slot back behind a process that has found it farther.
    SlotSetBack,
    /// Faults of Kafka in any order, one soon after the other.
    KafkaTroubles,
    /// Faults of RabbitMQ in any order, one soon after the other.
    RabbitTroubles,
    /// A queue of RabbitMQ does not answer, and channels are closed over messages to others.
    ClosesBesideSilence,
}

/// When a step of a script is made, counted from the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Rounds(u64),
    /// This relay has the slot.
    Session(Who),
    /// So many more records are stored.
    Stored(u64),
    /// Everything is stored and confirmed.
    Quiet,
    /// Postgres runs.
    Runs,
    /// A relay has left its trace, and Postgres has not read it.
    Traced,
}

/// The relay that has the slot when the script begins, or its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Holder,
    Peer,
}

/// How the ends of topics are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It fails at times, or leaves a partition out.
    #[default]
    AtTimes,
    Whole,
    Fails,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Fault(FaultKind),
    /// A fault that lasts until all is mended.
    Last(FaultKind),
    /// The process dies, and is not started again before the script says so.
    Kill(Who),
    Start(Who),
    /// It stands still for a moment that is shorter than a lease.
    Pause(Who),
    GoOn(Who),
    /// It stands still until it goes on.
    Freeze(Who),
    /// Its machine is suspended: its clock stands.
    Sleep(Who),
    BrokerAway,
    /// Neither its session nor its other connections to Postgres get anything through.
    CutHost(Who),
    HealHost,
    /// A topic takes no record, and the others do.
    HoldTopic,
    /// The others have all by now, or something more since the last look.
    JudgeOthers,
    /// All that was away or silent is well again.
    Mend,
    Wait,
    /// Rounds are long.
    Slow(u64),
    /// The server has noticed that the sessions are over.
    EndSessions,
    /// No bytes of the sessions that begin arrive at the server behind the trace.
    LosesReports(bool),
    Commits(u64),
    /// One transaction with so many changes: rows of the outbox, or of another table.
    Commit {
        changes: u64,
        has_events: bool,
    },
    Read(Reading),
    /// The topics, or one of them, are empty and new.
    TopicAnew,
    /// The machine of the relay and the broker starts anew.
    MachineLost,
    Unpublish,
    Publish,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) until: Until,
    pub(crate) act: Act,
}

/// The choices of a scenario for its world.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stage {
    pub(crate) relays: Option<usize>,
    pub(crate) sink: Option<SinkKind>,
    pub(crate) policy: Option<OnDeadLetter>,
    pub(crate) reads_topics: Option<bool>,
    pub(crate) has_file: Option<bool>,
    /// How many of 256 events are refused for ever.
    pub(crate) poison: Option<u64>,
    pub(crate) burst: Option<(usize, Duration)>,
    pub(crate) reads_letters_late: bool,
    /// Whether no other fault happens.
    pub(crate) is_calm: bool,
    /// Whether no transaction is committed but by the script, from its begin on.
    pub(crate) is_still: bool,
    /// Inside a transaction, a keepalive has the position of its end.
    pub(crate) keeps_alive_ahead: bool,
    pub(crate) window: Option<usize>,
    /// Whether no transaction is committed behind the script.
    pub(crate) is_last: bool,
    /// The script begins behind so many events.
    pub(crate) begins_at: u64,
}

pub(crate) struct Play {
    pub(crate) stage: Stage,
    pub(crate) steps: Vec<Step>,
}

/// The script of this seed: that of the scenario which is wanted, or the seed's own, if it has one. Other
/// numbers of the seed do not follow from that.
pub(crate) fn drawn(seed: u64, wanted: Option<Scenario>) -> Option<Play> {
    let mut random = Random::new(Random::new(seed ^ 0x5ce0_a210).number());
    let has_own_order = random.number().is_multiple_of(ONE_OF);
    let drawn = random.number();
    let own = if has_own_order {
        let in_order = Scenario::Takeovers as u64;
        Some(Scenario::value_variants()[(drawn % in_order) as usize])
    } else {
        let is_takeovers = (drawn >> 32) % TAKEOVERS_ONE_OF == TAKEOVERS_REMAINDER;
        is_takeovers.then_some(Scenario::Takeovers)
    };
    wanted.or(own).map(|scenario| scenario.play(&mut random))
}

impl Scenario {
    fn play(self, random: &mut Random) -> Play {
        let mut script = Script { random, steps: Vec::new() };
        let mut stage = Stage {
            is_calm: script.below(4) > 0,
            is_still: true,
            is_last: script.below(2) == 0,
            begins_at: 20 + script.below(120),
            keeps_alive_ahead: script.below(4) == 0,
            ..Stage::default()
        };
        match self {
            Scenario::Storm => script.storm(&mut stage),
            Scenario::Moved => script.moved(&mut stage),
            Scenario::RestoredUnseen => script.restored(&mut stage),
            Scenario::GapUnseen => script.gap(&mut stage),
            Scenario::MachineLost => script.machine_lost(&mut stage),
            Scenario::PeerRepeats => script.peer_repeats(&mut stage),
            Scenario::TopicAnew => script.topic_anew(&mut stage),
            Scenario::PartlyKnown => script.partly_known(&mut stage),
            Scenario::PeerUnconfirmed => script.peer_unconfirmed(&mut stage),
            Scenario::LettersLate => script.letters_late(&mut stage),
            Scenario::SinkLost => script.sink_lost(&mut stage),
            Scenario::PeerUnseen => script.peer_unseen(&mut stage),
            Scenario::HostCut => script.host_cut(&mut stage),
            Scenario::TakeoverInSilence => script.takeover_in_silence(&mut stage),
            Scenario::RestoredSeen => script.restored_seen(&mut stage),
            Scenario::TraceLost => script.trace_lost(&mut stage),
            Scenario::SessionsEmpty => script.sessions_empty(&mut stage),
            Scenario::RestoredInSilence => script.restored_in_silence(&mut stage),
            Scenario::OneTopic => script.one_topic(&mut stage),
            Scenario::PeerConfirms => script.peer_confirms(&mut stage),
            Scenario::Takeovers => script.takeovers(&mut stage),
            Scenario::Combined => script.combined(&mut stage),
            Scenario::PeerInCrash => script.peer_in_crash(&mut stage),
            Scenario::LastReports => script.last_reports(&mut stage),
            Scenario::StopsInFlight => script.stops_in_flight(&mut stage),
            Scenario::Suspensions => script.suspensions(&mut stage),
            Scenario::TracesUsedUp => script.traces_used_up(&mut stage),
            Scenario::WaitsInSink => script.wait_in_sink(&mut stage),
            Scenario::HistoryAnew => script.history_anew(&mut stage),
            Scenario::SlotSetBack => script.slot_set_back(&mut stage),
            Scenario::KafkaTroubles => script.kafka_troubles(&mut stage),
            Scenario::RabbitTroubles => script.rabbit_troubles(&mut stage),
            Scenario::ClosesBesideSilence => script.close_beside_silence(&mut stage),
        }
        Play { steps: script.steps, stage }
    }
}

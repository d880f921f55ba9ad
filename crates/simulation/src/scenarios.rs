//! Short scripts of faults, in the order in which they do harm. A part of the seeds plays one; what is
//! around it, and how long each step lasts, stays random.

use std::time::Duration;

use walrelay_core::base::random::Random;
use walrelay_core::delivery::settings::OnDeadLetter;

use crate::faults::FaultKind;
use crate::options::SinkKind;

/// One seed of so many plays a scenario.
const ONE_OF: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
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
}

impl Scenario {
    const ALL: [Scenario; 20] = [
        Scenario::Storm,
        Scenario::Moved,
        Scenario::RestoredUnseen,
        Scenario::GapUnseen,
        Scenario::MachineLost,
        Scenario::PeerRepeats,
        Scenario::TopicAnew,
        Scenario::PartlyKnown,
        Scenario::PeerUnconfirmed,
        Scenario::LettersLate,
        Scenario::SinkLost,
        Scenario::PeerUnseen,
        Scenario::HostCut,
        Scenario::TakeoverInSilence,
        Scenario::RestoredSeen,
        Scenario::TraceLost,
        Scenario::SessionsEmpty,
        Scenario::RestoredInSilence,
        Scenario::OneTopic,
        Scenario::PeerConfirms,
    ];
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
    /// The process dies, and is not started again before the script says so.
    Kill(Who),
    Start(Who),
    /// It stands still for a moment that is shorter than a lease.
    Pause(Who),
    GoOn(Who),
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

/// The scenario of this seed, if it has one. Other numbers of the seed do not follow from that.
pub(crate) fn drawn(seed: u64) -> Option<Play> {
    let mut random = Random::new(Random::new(seed ^ 0x5ce0_a210).number());
    if !random.number().is_multiple_of(ONE_OF) {
        return None;
    }
    let all = Scenario::ALL;
    let scenario = all[(random.number() % all.len() as u64) as usize];
    Some(scenario.play(&mut random))
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
        }
        Play { steps: script.steps, stage }
    }
}

struct Script<'a> {
    random: &'a mut Random,
    steps: Vec<Step>,
}

impl Script<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.number() % bound
    }

    fn then(&mut self, until: Until, act: Act) {
        self.steps.push(Step { until, act });
    }

    fn at_once(&mut self, act: Act) {
        self.then(Until::Rounds(0), act);
    }

    fn after_rounds(&mut self, most: u64, act: Act) {
        let rounds = self.below(most);
        self.then(Until::Rounds(rounds), act);
    }

    fn after_stored(&mut self, most: u64, act: Act) {
        let stored = 1 + self.below(most);
        self.then(Until::Stored(stored), act);
    }

    /// Loses the reports of events that are published from here on.
    fn lose_reports(&mut self) {
        self.at_once(Act::LosesReports(true));
        self.at_once(Act::Fault(FaultKind::CutUp));
    }

    fn commits(&mut self, most: u64) {
        let commits = 1 + self.below(most);
        self.at_once(Act::Commits(commits));
    }

    fn storm(&mut self, stage: &mut Stage) {
        let burst_max = 2 + self.below(5) as usize;
        stage.burst = Some((burst_max, Duration::from_secs(20)));
        stage.poison = Some(40);
        (stage.relays, stage.is_still, stage.is_calm) = (Some(1), false, true);
        for _ in 0..self.below(4) {
            self.after_rounds(60, Act::Fault(FaultKind::Kill));
        }
    }

    fn moved(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_still) = (Some(1), false);
        self.after_rounds(40, Act::EndSessions);
        self.after_rounds(3, Act::Fault(FaultKind::SlotAdvanced));
    }

    fn restored(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        self.then(Until::Rounds(160), Act::Kill(Who::Holder));
        self.after_rounds(10, Act::Fault(FaultKind::Restore));
        self.after_rounds(30, Act::Start(Who::Holder));
    }

    fn gap(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(1), true);
        self.after_rounds(20, Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.after_rounds(10, Act::Unpublish);
        self.commits(5);
        self.after_rounds(10, Act::Publish);
        self.commits(3);
        self.after_rounds(10, Act::Start(Who::Holder));
    }

    fn machine_lost(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        stage.reads_topics = Some(self.below(4) == 0);
        self.lose_reports();
        self.commits(12);
        self.after_stored(20, Act::MachineLost);
        self.after_rounds(20, Act::LosesReports(false));
        self.at_once(Act::Start(Who::Holder));
    }

    fn peer_repeats(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(2), Some(true));
        (stage.reads_topics, stage.is_last) = (Some(false), true);
        self.then(Until::Quiet, Act::Wait);
        self.lose_reports();
        self.commits(12);
        self.then(Until::Rounds(60), Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.then(Until::Session(Who::Peer), Act::Wait);
        self.after_stored(10, Act::Kill(Who::Peer));
        self.at_once(Act::EndSessions);
        self.at_once(Act::LosesReports(false));
        self.at_once(Act::Start(Who::Holder));
        self.then(Until::Rounds(100), Act::Start(Who::Peer));
    }

    fn topic_anew(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        (stage.reads_topics, stage.is_calm) = (Some(true), true);
        self.lose_reports();
        self.commits(12);
        self.after_stored(20, Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.at_once(Act::Read(Reading::Whole));
        self.after_rounds(10, Act::TopicAnew);
        self.at_once(Act::Start(Who::Holder));
        if self.below(2) == 0 {
            self.then(Until::Session(Who::Holder), Act::Read(Reading::Whole));
            let stored = 3 + self.below(12);
            self.then(Until::Stored(stored), Act::Kill(Who::Holder));
            self.at_once(Act::EndSessions);
            self.at_once(Act::Read(Reading::Fails));
            self.at_once(Act::LosesReports(false));
            self.at_once(Act::Start(Who::Holder));
        } else {
            self.at_once(Act::LosesReports(false));
        }
    }

    fn partly_known(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        (stage.reads_topics, stage.is_calm, stage.is_last) = (Some(true), true, true);
        self.then(Until::Quiet, Act::Wait);
        self.lose_reports();
        self.commits(3);
        self.at_once(Act::Read(Reading::Whole));
        self.after_stored(5, Act::Fault(FaultKind::MachineRestart));
        self.at_once(Act::EndSessions);
        self.at_once(Act::Start(Who::Holder));
        self.then(Until::Session(Who::Holder), Act::Read(Reading::Whole));
        self.commits(5);
        self.then(Until::Rounds(80), Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.at_once(Act::Read(Reading::Fails));
        self.at_once(Act::Start(Who::Holder));
        if self.below(2) == 0 {
            self.after_stored(4, Act::Kill(Who::Holder));
            self.at_once(Act::EndSessions);
            self.at_once(Act::LosesReports(false));
            self.at_once(Act::Start(Who::Holder));
        } else {
            self.at_once(Act::LosesReports(false));
        }
    }

    fn peer_unconfirmed(&mut self, stage: &mut Stage) {
        (stage.relays, stage.reads_topics) = (Some(2), Some(true));
        (stage.sink, stage.is_calm) = (Some(SinkKind::Direct), true);
        // A refused event is in no topic, and what comes behind it is published again.
        stage.poison = Some(0);
        self.at_once(Act::Read(Reading::Whole));
        self.lose_reports();
        self.commits(12);
        let is_silent = self.below(2) == 0;
        if is_silent {
            self.after_rounds(10, Act::Fault(FaultKind::SilentTopic));
            self.commits(12);
        }
        self.after_rounds(10, Act::Pause(Who::Holder));
        self.at_once(Act::EndSessions);
        self.then(Until::Session(Who::Peer), Act::Read(Reading::Whole));
        self.commits(12);
        self.after_stored(12, Act::Kill(Who::Peer));
        self.at_once(Act::EndSessions);
        self.at_once(Act::LosesReports(false));
        if is_silent {
            self.at_once(Act::Mend);
        }
        self.at_once(Act::GoOn(Who::Holder));
        self.then(Until::Rounds(100), Act::Start(Who::Peer));
    }

    fn letters_late(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_still) = (Some([1, 2, 2][self.below(3) as usize]), false);
        (stage.policy, stage.poison) = (Some(OnDeadLetter::ParkKey), Some(16));
        stage.reads_letters_late = true;
        for _ in 0..3 + self.below(6) {
            self.after_rounds(60, Act::EndSessions);
            if self.below(3) == 0 {
                self.after_rounds(20, Act::Fault(FaultKind::Kill));
            }
        }
    }

    fn peer_unseen(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm, stage.is_last) = (Some(2), true, true);
        stage.reads_topics = Some(self.below(4) == 0);
        self.lose_reports();
        self.commits(12);
        if self.below(2) == 0 {
            self.after_rounds(10, Act::Fault(FaultKind::SilentTopic));
        }
        self.after_rounds(60, Act::Pause(Who::Holder));
        self.at_once(Act::EndSessions);
        let trace = self.below(3);
        if trace == 0 {
            self.then(Until::Traced, Act::EndSessions);
        }
        self.then(Until::Session(Who::Peer), Act::Wait);
        if self.below(2) == 0 {
            self.commits(4);
        }
        if trace == 1 {
            self.then(Until::Traced, Act::Fault(FaultKind::CutUp));
            self.then(Until::Rounds(60), Act::Kill(Who::Peer));
        } else {
            self.after_stored(12, Act::Kill(Who::Peer));
        }
        self.at_once(Act::EndSessions);
        self.at_once(Act::LosesReports(false));
        self.at_once(Act::GoOn(Who::Holder));
        self.after_rounds(40, Act::Mend);
        self.then(Until::Rounds(100), Act::Start(Who::Peer));
    }

    fn peer_confirms(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm, stage.is_last) = (Some(2), true, true);
        // What a client of Kafka has goes out before its relay can know.
        stage.sink = Some(SinkKind::Direct);
        self.commits(30);
        self.after_rounds(8, Act::Pause(Who::Holder));
        self.at_once(Act::EndSessions);
        self.then(Until::Session(Who::Peer), Act::Wait);
        self.then(Until::Quiet, Act::Kill(Who::Peer));
        self.at_once(Act::EndSessions);
        self.at_once(Act::GoOn(Who::Holder));
        self.then(Until::Rounds(100), Act::Start(Who::Peer));
    }

    fn host_cut(&mut self, stage: &mut Stage) {
        (stage.relays, stage.sink) = (Some(2), Some(SinkKind::Direct));
        (stage.is_calm, stage.window) = (true, Some(4));
        self.commits(60);
        let kind = self.below(3);
        if kind == 1 {
            // Postgres hears nothing of it for longer than it hears nothing of Postgres.
            self.at_once(Act::Slow(300));
            self.at_once(Act::Fault(FaultKind::CutUp));
            let rounds = 8 + self.below(8);
            self.then(Until::Rounds(rounds), Act::Commits(40));
        }
        self.after_rounds(6, Act::BrokerAway);
        self.after_rounds(6, Act::CutHost(Who::Holder));
        self.at_once(Act::Slow(300));
        match kind {
            0 => self.after_rounds(3, Act::Sleep(Who::Holder)),
            1 => {
                // It reads what has waited for long.
                let rounds = 14 + self.below(9);
                self.then(Until::Rounds(rounds), Act::Mend);
                self.then(Until::Rounds(2), Act::BrokerAway);
            }
            _ => {}
        }
        self.then(Until::Session(Who::Peer), Act::Mend);
        self.at_once(Act::GoOn(Who::Holder));
        self.then(Until::Rounds(60), Act::HealHost);
        self.at_once(Act::Slow(0));
    }

    fn takeover_in_silence(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(2), true);
        self.commits(12);
        self.after_rounds(10, Act::Fault(FaultKind::SilentTopic));
        self.commits(12);
        self.after_rounds(20, Act::EndSessions);
        self.then(Until::Session(Who::Peer), Act::Wait);
        self.after_rounds(60, Act::Mend);
    }

    fn restored_seen(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_last) = (Some(1), true);
        self.commits(6);
        self.then(Until::Quiet, Act::Fault(FaultKind::Restore));
    }

    fn trace_lost(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(1), true);
        self.then(Until::Quiet, Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.commits(4);
        self.at_once(Act::Start(Who::Holder));
        self.then(Until::Traced, Act::Pause(Who::Holder));
        self.at_once(Act::Fault(FaultKind::Restore));
        self.then(Until::Runs, Act::Commits(14));
        self.after_rounds(10, Act::GoOn(Who::Holder));
    }

    fn sessions_empty(&mut self, stage: &mut Stage) {
        stage.relays = Some(1);
        self.commits(6);
        if self.below(2) == 0 {
            self.then(Until::Rounds(40), Act::EndSessions);
            for _ in 0..1 + self.below(3) {
                self.then(Until::Session(Who::Holder), Act::Wait);
                self.after_rounds(6, Act::EndSessions);
            }
            self.after_rounds(6, Act::Fault(FaultKind::Restore));
            self.then(Until::Runs, Act::Wait);
            self.commits(12);
            return;
        }
        stage.is_calm = true;
        self.then(Until::Quiet, Act::EndSessions);
        for _ in 0..self.below(3) {
            self.then(Until::Session(Who::Holder), Act::Wait);
            self.after_rounds(20, Act::EndSessions);
        }
        self.then(Until::Session(Who::Holder), Act::Wait);
        self.after_rounds(20, Act::Pause(Who::Holder));
        self.at_once(Act::Fault(FaultKind::Restore));
        self.then(Until::Runs, Act::Commits(14));
        self.at_once(Act::GoOn(Who::Holder));
    }

    fn restored_in_silence(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(1), true);
        self.commits(6);
        self.after_rounds(6, Act::Fault(FaultKind::BrokerAway));
        self.after_rounds(20, Act::Fault(FaultKind::Restore));
        self.then(Until::Runs, Act::Wait);
        self.commits(12);
        self.after_rounds(12, Act::Mend);
    }

    fn one_topic(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm, stage.poison) = (Some(1), true, Some(0));
        stage.window = Some([4, 16, 64][self.below(3) as usize]);
        stage.begins_at = 10 + self.below(30);
        // More may be in flight than at first.
        let many = self.below(4) == 0;
        if many {
            (stage.window, stage.sink) = (Some(2_000), Some(SinkKind::Direct));
        }
        let busy = 20 + self.below(80);
        self.at_once(Act::Commits(busy));
        self.after_rounds(100, Act::HoldTopic);
        self.at_once(Act::Commits(if many { 500 } else { 12 }));
        self.at_once(Act::Slow(400));
        self.then(Until::Rounds(200), Act::JudgeOthers);
        self.then(Until::Rounds(100), Act::JudgeOthers);
        self.at_once(Act::Slow(0));
        self.at_once(Act::Mend);
    }

    fn sink_lost(&mut self, stage: &mut Stage) {
        (stage.relays, stage.sink) = (Some(1), Some(SinkKind::Direct));
        (stage.is_still, stage.is_calm) = (false, true);
        for _ in 0..2 + self.below(3) {
            self.after_rounds(40, Act::Fault(FaultKind::SinkBroken));
        }
    }
}

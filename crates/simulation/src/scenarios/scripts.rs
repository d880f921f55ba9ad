//! The script of each scenario.

use std::time::Duration;

use walrelay_core::base::random::Random;
use walrelay_core::delivery::settings::OnDeadLetter;

use super::{Act, Reading, Stage, Step, Until, Who};
use crate::faults::FaultKind;
use crate::options::SinkKind;

/// A script that is written, with random lengths.
pub(super) struct Script<'a> {
    pub(super) random: &'a mut Random,
    pub(super) steps: Vec<Step>,
}

impl Script<'_> {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.number() % bound
    }

    pub(super) fn then(&mut self, until: Until, act: Act) {
        self.steps.push(Step { until, act });
    }

    pub(super) fn at_once(&mut self, act: Act) {
        self.then(Until::Rounds(0), act);
    }

    pub(super) fn after_rounds(&mut self, most: u64, act: Act) {
        let rounds = self.below(most);
        self.then(Until::Rounds(rounds), act);
    }

    pub(super) fn after_stored(&mut self, most: u64, act: Act) {
        let stored = 1 + self.below(most);
        self.then(Until::Stored(stored), act);
    }

    /// Loses the reports of events that are published from here on.
    pub(super) fn lose_reports(&mut self) {
        self.at_once(Act::LosesReports(true));
        self.at_once(Act::Fault(FaultKind::CutUp));
    }

    pub(super) fn commits(&mut self, most: u64) {
        let commits = 1 + self.below(most);
        self.at_once(Act::Commits(commits));
    }

    /// Kills a relay. The server mostly notices that at once.
    pub(super) fn kill(&mut self, who: Who) {
        self.at_once(Act::Kill(who));
        if self.below(4) > 0 {
            self.at_once(Act::EndSessions);
        }
    }

    /// Mends all, and starts both relays.
    pub(super) fn all_go_on(&mut self) {
        self.at_once(Act::LosesReports(false));
        self.at_once(Act::Mend);
        for who in [Who::Holder, Who::Peer] {
            self.at_once(Act::GoOn(who));
            self.after_rounds(60, Act::Start(who));
        }
    }

    pub(super) fn storm(&mut self, stage: &mut Stage) {
        let burst_max = 2 + self.below(5) as usize;
        stage.burst = Some((burst_max, Duration::from_secs(20)));
        stage.poison = Some(40);
        (stage.relays, stage.is_still, stage.is_calm) = (Some(1), false, true);
        for _ in 0..self.below(4) {
            self.after_rounds(60, Act::Fault(FaultKind::Kill));
        }
    }

    pub(super) fn moved(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_still) = (Some(1), false);
        self.after_rounds(40, Act::EndSessions);
        self.after_rounds(3, Act::Fault(FaultKind::SlotAdvanced));
    }

    pub(super) fn restored(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        self.then(Until::Rounds(160), Act::Kill(Who::Holder));
        self.after_rounds(10, Act::Fault(FaultKind::Restore));
        self.after_rounds(30, Act::Start(Who::Holder));
    }

    pub(super) fn gap(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(1), true);
        self.after_rounds(20, Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.after_rounds(10, Act::Unpublish);
        self.commits(5);
        self.after_rounds(10, Act::Publish);
        self.commits(3);
        self.after_rounds(10, Act::Start(Who::Holder));
    }

    pub(super) fn machine_lost(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        stage.reads_topics = Some(self.below(4) == 0);
        self.lose_reports();
        self.commits(12);
        self.after_stored(20, Act::MachineLost);
        self.after_rounds(20, Act::LosesReports(false));
        self.at_once(Act::Start(Who::Holder));
    }

    pub(super) fn peer_repeats(&mut self, stage: &mut Stage) {
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

    pub(super) fn topic_anew(&mut self, stage: &mut Stage) {
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

    pub(super) fn partly_known(&mut self, stage: &mut Stage) {
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

    pub(super) fn peer_unconfirmed(&mut self, stage: &mut Stage) {
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

    pub(super) fn letters_late(&mut self, stage: &mut Stage) {
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

    pub(super) fn peer_unseen(&mut self, stage: &mut Stage) {
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

    pub(super) fn peer_confirms(&mut self, stage: &mut Stage) {
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

    pub(super) fn host_cut(&mut self, stage: &mut Stage) {
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

    pub(super) fn takeover_in_silence(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(2), true);
        self.commits(12);
        self.after_rounds(10, Act::Fault(FaultKind::SilentTopic));
        self.commits(12);
        self.after_rounds(20, Act::EndSessions);
        self.then(Until::Session(Who::Peer), Act::Wait);
        self.after_rounds(60, Act::Mend);
    }

    pub(super) fn restored_seen(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_last) = (Some(1), true);
        self.commits(6);
        self.then(Until::Quiet, Act::Fault(FaultKind::Restore));
    }

    pub(super) fn trace_lost(&mut self, stage: &mut Stage) {
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

    pub(super) fn sessions_empty(&mut self, stage: &mut Stage) {
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

    pub(super) fn restored_in_silence(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(1), true);
        self.commits(6);
        self.after_rounds(6, Act::Fault(FaultKind::BrokerAway));
        self.after_rounds(20, Act::Fault(FaultKind::Restore));
        self.then(Until::Runs, Act::Wait);
        self.commits(12);
        self.after_rounds(12, Act::Mend);
    }

    pub(super) fn one_topic(&mut self, stage: &mut Stage) {
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

    pub(super) fn sink_lost(&mut self, stage: &mut Stage) {
        (stage.relays, stage.sink) = (Some(1), Some(SinkKind::Direct));
        (stage.is_still, stage.is_calm) = (false, true);
        for _ in 0..2 + self.below(3) {
            self.after_rounds(40, Act::Fault(FaultKind::SinkBroken));
        }
    }
}

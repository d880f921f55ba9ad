//! Takeovers in the order in which they do harm: what a peer publishes or confirms while the relay does not
//! see it, or must not publish.

use super::scripts::Script;
use super::{Act, Stage, Until, Who};
use crate::faults::FaultKind;
use crate::options::SinkKind;

impl Script<'_> {
    /// Two relays with state files, and nothing but the script.
    fn two_relays(&mut self, stage: &mut Stage, sink: SinkKind) {
        (stage.relays, stage.has_file) = (Some(2), Some(true));
        (stage.reads_topics, stage.is_calm, stage.is_last) = (Some(false), true, true);
        // A refused event is in no topic, and what comes behind it is published again.
        (stage.sink, stage.poison) = (Some(sink), Some(0));
    }

    fn crash(&mut self) {
        self.at_once(Act::Fault(FaultKind::PostgresCrash));
        self.then(Until::Runs, Act::Wait);
    }

    /// The peer gets the slot while the relay stands still.
    fn peer_takes_over(&mut self, rounds_max: u64) {
        self.after_rounds(rounds_max, Act::Pause(Who::Holder));
        self.at_once(Act::EndSessions);
        self.at_once(Act::Start(Who::Peer));
        self.then(Until::Session(Who::Peer), Act::Wait);
    }

    /// The process of the relay is a new one, which has not seen its peer. Its reports are lost behind its
    /// trace.
    fn begin_alone(&mut self) {
        self.then(Until::Quiet, Act::Kill(Who::Peer));
        self.at_once(Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.at_once(Act::LosesReports(true));
        self.at_once(Act::Start(Who::Holder));
        self.then(Until::Session(Who::Holder), Act::Wait);
    }

    /// The relay sees Postgres again before its peer runs.
    fn both_come_back(&mut self) {
        self.at_once(Act::LosesReports(false));
        self.after_rounds(4, Act::GoOn(Who::Holder));
        self.then(Until::Rounds(100), Act::Start(Who::Peer));
        self.at_once(Act::Start(Who::Holder));
    }

    pub(super) fn peer_in_crash(&mut self, stage: &mut Stage) {
        self.two_relays(stage, SinkKind::Direct);
        if self.below(3) > 0 {
            self.begin_alone();
        } else {
            self.lose_reports();
        }
        let commits = 4 + self.below(8);
        self.at_once(Act::Commits(commits));
        self.after_stored(4, Act::Wait);
        if self.below(2) == 0 {
            self.crash();
            self.then(Until::Session(Who::Holder), Act::Wait);
        }
        self.peer_takes_over(8);
        self.after_stored(10, Act::Kill(Who::Peer));
        self.at_once(Act::EndSessions);
        if self.below(2) == 0 {
            self.crash();
        }
        if self.below(3) == 0 {
            self.at_once(Act::Fault(FaultKind::Stop));
        }
        self.both_come_back();
    }

    pub(super) fn last_reports(&mut self, stage: &mut Stage) {
        self.two_relays(stage, SinkKind::Direct);
        if self.below(3) == 0 {
            // The relay has seen its peer on the timeline before, and not since.
            self.at_once(Act::Kill(Who::Peer));
            self.at_once(Act::Fault(FaultKind::Failover));
            self.then(Until::Runs, Act::Wait);
            self.then(Until::Session(Who::Holder), Act::Wait);
        }
        self.then(Until::Quiet, Act::Wait);
        self.lose_reports();
        self.commits(3);
        let rounds = 30 + self.below(100);
        self.then(Until::Rounds(rounds), Act::Wait);
        if self.below(3) == 0 {
            self.stops_unseen();
        } else {
            self.peer_confirms_the_same();
        }
    }

    /// The peer has the slot for a moment, in which nothing is decoded. Then the relay stops without a session,
    /// while the peer looks away.
    fn stops_unseen(&mut self) {
        self.peer_takes_over(20);
        self.after_rounds(3, Act::EndSessions);
        self.at_once(Act::Pause(Who::Peer));
        self.at_once(Act::Fault(FaultKind::Stop));
        self.at_once(Act::GoOn(Who::Holder));
        let rounds = 10 + self.below(60);
        self.then(Until::Rounds(rounds), Act::LosesReports(false));
        self.at_once(Act::GoOn(Who::Peer));
        self.then(Until::Session(Who::Peer), Act::Wait);
    }

    /// The peer confirms all, as the relay has, and dies over what comes next; then it comes back behind the
    /// relay.
    fn peer_confirms_the_same(&mut self) {
        self.at_once(Act::LosesReports(false));
        self.peer_takes_over(20);
        self.then(Until::Quiet, Act::Wait);
        self.after_rounds(80, Act::Wait);
        self.lose_reports();
        self.commits(8);
        self.after_stored(8, Act::Kill(Who::Peer));
        self.at_once(Act::EndSessions);
        self.at_once(Act::GoOn(Who::Holder));
        self.then(Until::Session(Who::Holder), Act::Wait);
        self.after_stored(6, Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.at_once(Act::Start(Who::Peer));
        self.after_rounds(60, Act::LosesReports(false));
        self.at_once(Act::Start(Who::Holder));
    }

    pub(super) fn stops_in_flight(&mut self, stage: &mut Stage) {
        self.two_relays(stage, SinkKind::Direct);
        stage.is_last = false;
        self.commits(20);
        self.after_rounds(10, Act::BrokerAway);
        self.commits(12);
        self.after_rounds(20, Act::EndSessions);
        if self.below(4) > 0 {
            self.then(Until::Session(Who::Peer), Act::Wait);
        }
        self.after_rounds(4, Act::Fault(FaultKind::Stop));
        self.after_rounds(60, Act::Mend);
    }

    pub(super) fn suspensions(&mut self, stage: &mut Stage) {
        self.two_relays(stage, SinkKind::Direct);
        stage.window = Some(4);
        self.commits(60);
        if self.below(2) == 0 {
            // A session begins, and the relay stands still before it sees that.
            self.after_rounds(20, Act::EndSessions);
            self.then(Until::Session(Who::Holder), Act::Freeze(Who::Holder));
            self.after_rounds(12, Act::CutHost(Who::Holder));
            self.at_once(Act::Slow(400));
        } else {
            self.after_rounds(6, Act::BrokerAway);
            self.after_rounds(6, Act::CutHost(Who::Holder));
            self.at_once(Act::Slow(400));
            for _ in 0..2 + self.below(4) {
                self.after_rounds(4, Act::Sleep(Who::Holder));
                let rounds = 6 + self.below(18);
                self.then(Until::Rounds(rounds), Act::GoOn(Who::Holder));
            }
        }
        self.then(Until::Session(Who::Peer), Act::Mend);
        self.at_once(Act::GoOn(Who::Holder));
        self.then(Until::Rounds(60), Act::HealHost);
        self.at_once(Act::Slow(0));
    }

    /// The relays take the slot from each other until no trace fits in front of the next transaction. The
    /// last one dies when it has repeated a part, and the other one is asked to stop.
    pub(super) fn traces_used_up(&mut self, stage: &mut Stage) {
        self.two_relays(stage, SinkKind::Direct);
        self.lose_reports();
        self.commits(12);
        self.after_stored(12, Act::Wait);
        for _ in 0..3 + self.below(8) {
            self.at_once(Act::EndSessions);
            self.after_rounds(30, Act::Wait);
        }
        let looks_away = self.below(3) == 0;
        if looks_away {
            self.peer_takes_over(20);
        } else {
            self.at_once(Act::EndSessions);
            self.then(Until::Session(Who::Peer), Act::Wait);
        }
        self.after_stored(10, Act::Kill(Who::Peer));
        if self.below(4) > 0 {
            self.at_once(Act::Fault(FaultKind::Stop));
        }
        self.at_once(Act::EndSessions);
        self.both_come_back();
    }

    pub(super) fn wait_in_sink(&mut self, stage: &mut Stage) {
        self.two_relays(stage, SinkKind::Rabbitmq);
        let kind = [FaultKind::AmqpSocketFull, FaultKind::BrokerAlarm][self.below(2) as usize];
        self.at_once(Act::Fault(kind));
        self.commits(30);
        self.after_rounds(20, Act::EndSessions);
        self.at_once(Act::CutHost(Who::Holder));
        self.then(Until::Session(Who::Peer), Act::Wait);
        self.commits(6);
        self.after_rounds(60, Act::Slow(60));
        self.then(Until::Rounds(100), Act::HealHost);
        self.at_once(Act::Mend);
    }
}

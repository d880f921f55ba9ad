//! Faults of a few kinds in any order, again and again, between kills, starts and transactions: what one of
//! them leaves behind meets the next one.

use super::scripts::Script;
use super::{Act, Stage, Until};
use crate::faults::{FaultKind, some_of};
use crate::options::SinkKind;

/// The kinds of which a script has a few.
const KINDS: [FaultKind; 23] = [
    FaultKind::Stop,
    FaultKind::Freeze,
    FaultKind::ClockStep,
    FaultKind::MachineRestart,
    FaultKind::CutBoth,
    FaultKind::PostgresCrash,
    FaultKind::Failover,
    FaultKind::FailoverBehind,
    FaultKind::Restore,
    FaultKind::SlotAdvanced,
    FaultKind::SlotRecreated,
    FaultKind::OtherCluster,
    FaultKind::SinkBroken,
    FaultKind::Refusals,
    FaultKind::SilentTopic,
    FaultKind::AnswersLost,
    FaultKind::ProducerFatal,
    FaultKind::TopicRecreated,
    FaultKind::AmqpConnectionLost,
    FaultKind::AmqpHalfOpen,
    FaultKind::BrokerAlarm,
    FaultKind::ConfirmsLinger,
    FaultKind::AmqpSocketFull,
];

impl Script<'_> {
    pub(super) fn combined(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(2), Some(true));
        stage.is_calm = true;
        let sink = SinkKind::ALL[self.below(SinkKind::ALL.len() as u64) as usize];
        stage.sink = Some(sink);
        let mut kinds = KINDS.to_vec();
        // What a client of Kafka has goes out before a relay that stood still can know.
        let stands_still = sink == SinkKind::Direct;
        kinds.retain(|kind| *kind != FaultKind::Freeze || stands_still);
        let kinds = some_of(kinds, sink, 3, self.random);
        for _ in 0..8 + self.below(12) {
            self.wait_somehow();
            self.combined_act(&kinds, stands_still);
        }
        self.all_go_on();
    }

    fn wait_somehow(&mut self) {
        match self.below(8) {
            0..3 => self.after_rounds(6, Act::Wait),
            3 => self.after_rounds(60, Act::Wait),
            4..6 => self.after_stored(6, Act::Wait),
            6 => self.then(Until::Quiet, Act::Wait),
            _ => {}
        }
    }

    fn combined_act(&mut self, kinds: &[FaultKind], stands_still: bool) {
        let who = self.any_relay();
        match self.below(18) {
            0..4 => self.commits(4),
            4..6 => self.kill(who),
            6..9 => self.at_once(Act::Start(who)),
            9 => self.at_once(Act::EndSessions),
            10 => self.lose_reports(),
            11 => self.at_once(Act::LosesReports(false)),
            12 => {
                let rounds = self.below(100);
                self.at_once(Act::Slow(rounds));
            }
            13 if stands_still => self.at_once(Act::Sleep(who)),
            13 | 14 => self.at_once(Act::GoOn(who)),
            _ => {
                let kind = kinds[self.below(kinds.len() as u64) as usize];
                self.at_once(Act::Fault(kind));
                self.then(Until::Runs, Act::Wait);
            }
        }
    }
}

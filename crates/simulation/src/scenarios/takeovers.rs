//! Takeovers, crashes of Postgres and lost reports in any order, without other faults: what the slot shows
//! of two relays after that.

use super::scripts::Script;
use super::{Act, Stage, Until, Who};
use crate::faults::FaultKind;
use crate::options::SinkKind;

/// Which of the two relays run, as far as the script decides that.
struct Running {
    holder: bool,
    peer: bool,
}

impl Running {
    fn of(&mut self, who: Who) -> &mut bool {
        match who {
            Who::Holder => &mut self.holder,
            Who::Peer => &mut self.peer,
        }
    }
}

impl Script<'_> {
    pub(super) fn takeovers(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(2), Some(true));
        (stage.reads_topics, stage.is_calm) = (Some(self.below(8) == 0), true);
        stage.is_last = self.below(4) == 0;
        // A refused event is in no topic, and what comes behind it is published again.
        stage.poison = Some(0);
        // What a client of Kafka has goes out before its relay can know.
        let stands_still = self.below(2) == 0;
        if stands_still {
            stage.sink = Some(SinkKind::Direct);
        }
        let mut running = Running { holder: true, peer: true };
        for _ in 0..6 + self.below(12) {
            self.wait(&mut running);
            self.any_act(&mut running, stands_still);
        }
        self.all_go_on();
    }

    pub(super) fn any_relay(&mut self) -> Who {
        if self.below(2) == 0 { Who::Holder } else { Who::Peer }
    }

    fn wait(&mut self, running: &mut Running) {
        let who = self.any_relay();
        let other = if who == Who::Holder { Who::Peer } else { Who::Holder };
        let is_alone = *running.of(who) && !*running.of(other);
        let runs_one = running.holder || running.peer;
        match self.below(8) {
            0..3 => self.after_rounds(6, Act::Wait),
            3 => self.after_rounds(60, Act::Wait),
            4..6 if runs_one => self.after_stored(6, Act::Wait),
            6 if is_alone => self.then(Until::Session(who), Act::Wait),
            7 if runs_one => self.then(Until::Quiet, Act::Wait),
            _ => {}
        }
    }

    fn any_act(&mut self, running: &mut Running, stands_still: bool) {
        let who = self.any_relay();
        match self.below(20) {
            0..5 => self.commits(4),
            5..9 if *running.of(who) => {
                *running.of(who) = false;
                self.kill(who);
            }
            5..11 if !*running.of(who) => {
                *running.of(who) = true;
                self.at_once(Act::Start(who));
            }
            9..12 => self.at_once(Act::EndSessions),
            12 => self.lose_reports(),
            13 => self.at_once(Act::LosesReports(false)),
            14..17 => {
                self.at_once(Act::Fault(FaultKind::PostgresCrash));
                self.then(Until::Runs, Act::Wait);
            }
            17 if stands_still => self.at_once(Act::Pause(who)),
            18 => self.at_once(Act::GoOn(who)),
            _ => self.at_once(Act::Fault(FaultKind::Stop)),
        }
    }
}

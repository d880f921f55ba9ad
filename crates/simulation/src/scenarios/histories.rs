//! Restores and crashes of Postgres: other transactions are where those were that a relay has received, or the
//! slot is where it was before.

use super::scripts::Script;
use super::{Act, Stage, Until, Who};
use crate::faults::FaultKind;
use crate::options::SinkKind;

impl Script<'_> {
    /// A new process of the relay gets the slot.
    fn start_anew(&mut self) {
        self.at_once(Act::Kill(Who::Holder));
        self.at_once(Act::EndSessions);
        self.at_once(Act::Start(Who::Holder));
        self.then(Until::Session(Who::Holder), Act::Wait);
    }

    pub(super) fn history_anew(&mut self, stage: &mut Stage) {
        (stage.relays, stage.is_calm) = (Some(1), true);
        (stage.sink, stage.poison) = (Some(SinkKind::Direct), Some(0));
        match self.below(3) {
            0 => self.events_replaced(),
            1 => self.empty_transactions_replaced(),
            _ => self.restored_at_start(),
        }
        self.commits(12);
        self.after_rounds(20, Act::Mend);
    }

    /// Transactions that a lost sink has not confirmed are gone, and others of the same length have no event.
    fn events_replaced(&mut self) {
        let (transactions, changes) = (1 + self.below(6), 1 + self.below(3));
        self.at_once(Act::BrokerAway);
        for _ in 0..transactions {
            self.at_once(Act::Commit { changes, has_events: true });
        }
        let breaks_first = self.below(2) == 0;
        if breaks_first {
            self.after_rounds(30, Act::Fault(FaultKind::SinkBroken));
        }
        self.after_rounds(30, Act::Fault(FaultKind::Restore));
        if !breaks_first {
            self.at_once(Act::Fault(FaultKind::SinkBroken));
        }
        self.then(Until::Runs, Act::Wait);
        for _ in 0..transactions {
            self.at_once(Act::Commit { changes, has_events: false });
        }
        self.after_rounds(20, Act::Mend);
    }

    /// Some without events are gone, and others begin or end within them.
    fn empty_transactions_replaced(&mut self) {
        for _ in 0..1 + self.below(3) {
            for _ in 0..1 + self.below(3) {
                let (changes, has_events) = (1 + self.below(4), self.below(3) == 0);
                self.at_once(Act::Commit { changes, has_events });
            }
            match self.below(3) {
                0 => self.then(Until::Quiet, Act::Wait),
                _ => self.after_rounds(20, Act::Wait),
            }
            if self.below(3) == 0 {
                self.at_once(Act::EndSessions);
                self.then(Until::Session(Who::Holder), Act::Wait);
            }
            self.after_rounds(6, Act::Fault(FaultKind::Restore));
            self.then(Until::Runs, Act::Wait);
            for _ in 0..1 + self.below(3) {
                let changes = 1 + self.below(6);
                self.at_once(Act::Commit { changes, has_events: true });
            }
        }
    }

    /// A process has received nothing yet, and its next session begins behind a restore.
    fn restored_at_start(&mut self) {
        self.then(Until::Quiet, Act::Wait);
        self.start_anew();
        self.after_rounds(6, Act::Pause(Who::Holder));
        self.at_once(Act::Fault(FaultKind::Restore));
        self.then(Until::Runs, Act::Commits(8));
        self.commits(8);
        self.after_rounds(4, Act::GoOn(Who::Holder));
    }

    /// What the last process has marked lies on both sides of where this one has found the slot. A crash sets
    /// it back, the process publishes a part again, and dies.
    pub(super) fn slot_set_back(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        (stage.reads_topics, stage.is_calm, stage.is_last) = (Some(false), true, true);
        stage.poison = Some(0);
        self.commits(20);
        self.after_stored(16, Act::Wait);
        self.lose_reports();
        self.after_stored(8, Act::Wait);
        self.start_anew();
        self.after_rounds(6, Act::Fault(FaultKind::PostgresCrash));
        self.then(Until::Runs, Act::Wait);
        self.then(Until::Session(Who::Holder), Act::Wait);
        self.after_stored(8, Act::Wait);
        self.start_anew();
        self.after_rounds(20, Act::LosesReports(false));
        self.at_once(Act::EndSessions);
    }
}

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
        if self.below(3) == 0 {
            self.events_replaced();
        } else {
            self.empty_transactions_replaced();
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

    /// Some without events are gone, and another one commits within the commit record of the last of them: that
    /// is behind so many of their commit records.
    fn empty_transactions_replaced(&mut self) {
        for _ in 0..6 {
            self.at_once(Act::Commit { changes: 1, has_events: false });
        }
        self.after_rounds(40, Act::Wait);
        if self.below(4) == 0 {
            self.at_once(Act::EndSessions);
            self.then(Until::Session(Who::Holder), Act::Wait);
        }
        self.after_rounds(6, Act::Fault(FaultKind::Restore));
        let changes = [3, 5, 10][self.below(3) as usize];
        self.then(Until::Runs, Act::Commit { changes, has_events: true });
    }

    /// The marks of a process begin behind what the process before it had published, whose marks are gone. A crash
    /// sets the slot back before all that: the next process publishes a part of it again, and dies.
    pub(super) fn slot_set_back(&mut self, stage: &mut Stage) {
        (stage.relays, stage.has_file) = (Some(1), Some(true));
        (stage.reads_topics, stage.is_calm, stage.is_last) = (Some(false), true, true);
        (stage.sink, stage.poison) = (Some(SinkKind::Direct), Some(0));
        self.commits(20);
        self.after_stored(12, Act::Fault(FaultKind::MachineRestart));
        self.at_once(Act::LosesReports(true));
        self.start_anew();
        self.commits(12);
        self.after_stored(8, Act::Kill(Who::Holder));
        self.at_once(Act::Fault(FaultKind::PostgresCrash));
        self.then(Until::Runs, Act::Start(Who::Holder));
        self.then(Until::Session(Who::Holder), Act::Wait);
        self.after_stored(8, Act::Wait);
        self.start_anew();
        self.after_rounds(20, Act::LosesReports(false));
        self.at_once(Act::EndSessions);
    }
}

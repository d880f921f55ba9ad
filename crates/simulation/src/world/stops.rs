//! Checks of a relay that stops.

use std::collections::BTreeSet;

use walrelay_core::base::error::Fault;
use walrelay_core::health::Phase;

use super::World;
use crate::checker::Violation;
use crate::faults::FaultKind;
use crate::postgres::Transaction;
use walrelay_core::base::lock::locked;

/// A relay that ends sooner has read its open transaction to the end.
const READS_TRANSACTION_US: u64 = 1_400_000;

/// A relay that was asked to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Which of its processes.
    start: u32,
    at_us: u64,
    has_session: bool,
}

/// A relay that has ended as it was asked to, with nothing in its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct CleanEnd {
    relay: usize,
    /// Its last sink.
    sink: u64,
    /// It could read its open transaction to the end.
    had_session: bool,
}

impl World {
    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(Violation::from(what));
    }

    pub(super) fn has_happened(&self, kinds: &[FaultKind]) -> bool {
        self.report.happened.iter().any(|(_, kind)| kinds.contains(kind))
    }

    /// Whether nothing keeps a relay from Postgres or the broker.
    fn is_calm(&self) -> bool {
        let harmless = [FaultKind::Stop, FaultKind::Kill, FaultKind::Refusals];
        // Kafka's client is given up after a refusal, and what it had is received again.
        !locked(&self.broker).kafka.has_refused
            && self.report.happened.iter().all(|(_, kind)| harmless.contains(kind))
    }

    /// A stop that protects data needs a reason in the world.
    pub(super) fn judge_stop(&mut self, fault: &Fault, had_seen_peer: bool) {
        let reasons: &[FaultKind] = match fault.code {
            "slot.moved" => &[
                FaultKind::SlotAdvanced,
                FaultKind::SlotRecreated,
                FaultKind::Restore,
                FaultKind::FailoverBehind,
            ],
            "slot.went-back" => {
                &[FaultKind::Restore, FaultKind::SlotAdvanced, FaultKind::SlotRecreated]
            }
            "publication.gap" => &[FaultKind::Unpublished],
            // Neither Postgres nor a broker does here what these tell of.
            "source.protocol" | "sink.bad-receipt" => &[],
            _ => return,
        };
        // A peer that this relay has never seen cannot be told from another program.
        let has_unseen_peer =
            fault.code == "slot.moved" && self.machines.len() > 1 && !had_seen_peer;
        if !has_unseen_peer && !self.has_happened(reasons) {
            let (code, what) = (fault.code, &fault.what);
            self.violate(format!(
                "stop: {code} although nothing of that kind has happened: {what}"
            ));
        }
    }

    pub(super) fn ask_to_stop(&mut self, relay: usize) {
        let (start, at_us) = (self.starts[relay], self.clock.us());
        if self.asked[relay].is_none_or(|it| it.start != start) {
            let process = self.processes[relay].as_ref();
            let phase = process.map(|it| locked(&it.shown).pass.phase);
            let has_session = phase == Some(Phase::Streaming);
            self.asked[relay] = Some(Asked { start, at_us, has_session });
        }
    }

    /// A relay has ended as it was asked to, in time to finish its open transaction. Unless something
    /// has kept it from Postgres or the broker, the slot has all that the topics have.
    pub(super) fn judge_end(&mut self, relay: usize, has_closed_session: bool) {
        let asked = self.asked[relay].take().filter(|asked| asked.start == self.starts[relay]);
        let in_time = asked.is_some_and(|it| self.clock.us() < it.at_us + READS_TRANSACTION_US);
        let (starts, timeline) = (self.starts[relay], locked(&self.postgres).timeline);
        let had_slot = self.last_session == Some((relay, starts, timeline));
        let was_asked_in_session = asked.is_some_and(|it| it.has_session);
        // A session whose signs come too late is given up, and beside a peer what is in flight is withdrawn then.
        let has_withdrawn = was_asked_in_session && !has_closed_session && self.machines.len() > 1;
        if in_time && self.is_calm() && had_slot && !has_withdrawn {
            // Of what an earlier sink has published it may not know.
            let sink = locked(&self.broker).last_sinks[relay];
            let had_session = was_asked_in_session && has_closed_session;
            self.clean_end = Some(CleanEnd { relay, sink, had_session });
        }
    }

    /// The next session begins here.
    pub(super) fn judge_begin(&mut self, position: u64) {
        let Some(CleanEnd { relay, sink, had_session }) =
            self.clean_end.take().filter(|_| self.is_calm())
        else {
            return;
        };
        let (postgres, broker) = (locked(&self.postgres), locked(&self.broker));
        let by_it = broker.stored.iter().filter(|it| it.by.0 == relay && it.by.1 >= sink);
        let stored: BTreeSet<&str> = by_it.map(|it| it.id.as_str()).collect();
        let is_stored = |number: u64| stored.contains(format!("e{number}").as_str());
        let is_whole = |it: &&Transaction| it.events().all(|event| is_stored(event.number));
        // Without a session it sends nothing more, and the slot cannot pass a transaction that is not whole.
        let sent = postgres.sent_from(position).iter();
        let again = sent.take_while(|it| had_session || is_whole(it));
        let left = again.flat_map(|it| it.events()).filter(|it| is_stored(it.number)).count();
        drop((postgres, broker));
        if left > 0 {
            self.violate(format!(
                "stop: a relay that ended as it was asked to has left {left} stored events, which the next one is sent again"
            ));
        }
    }
}

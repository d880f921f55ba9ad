//! Which LSN may be reported to Postgres.
//!
//! Postgres removes the WAL before the reported position, accepts a position beyond
//! its own WAL without an error, and then skips what is written there later.
//! Therefore the reported position never exceeds what was seen, never goes back,
//! and follows a keepalive only when nothing is unconfirmed or half received. Then
//! it must follow: a shutdown of Postgres waits until the consumer has confirmed
//! everything, and an idle slot would retain the WAL that other databases write.
//!
//! In a new session it begins where the slot stands, and follows what the server has sent again. A
//! Postgres that has crashed may have an older position than was reported; whether it has also gone
//! back, and has other transactions there, shows only when it has sent them.

use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};

/// Records of the WAL begin and end at multiples of this.
const RECORD_ALIGNMENT: u64 = 8;

/// A commit record is longer: 24 bytes of header, 2 of the data's, and 8 at least of data.
const SIGNATURES: u64 = 32;
/// How far a trace is behind the position of the slot at most.
pub const TRACE_BYTES_MAX: u64 = SIGNATURES;

/// A signature that distinguishes the positions that one process reports from those of another:
/// their last five bits, which are never those of the end of a record. Two relays that have
/// published the same transactions would otherwise report the same positions, and a relay whose
/// last reports were lost could not see that another one has had the slot. 0 where it is not drawn
/// yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature(u64);

impl Signature {
    pub fn drawn(number: u64) -> Signature {
        // The last position before a record may begin is kept free: it is left for the trace of a peer.
        let are_free = 1..RECORD_ALIGNMENT - 1;
        let all = (1..SIGNATURES).filter(|it| are_free.contains(&(it % RECORD_ALIGNMENT)));
        let all: Vec<u64> = all.collect();
        Signature(all[(number % all.len() as u64) as usize])
    }

    /// As it was kept; 0 for none.
    pub fn of_word(word: u64) -> Signature {
        Signature(word % SIGNATURES)
    }

    pub fn to_word(self) -> u64 {
        self.0
    }

    /// Another one if one of the positions has this one.
    #[must_use]
    pub fn unlike(self, positions: [Lsn; 2]) -> Signature {
        let is_free = |it: &Signature| !positions.iter().any(|position| it.is_on(*position));
        let mut others = (0..=positions.len() as u64).map(|next| Signature::drawn(self.0 + next));
        if is_free(&self) { self } else { others.find(is_free).unwrap_or(self) }
    }

    pub fn is_on(self, position: Lsn) -> bool {
        self.0 > 0 && position.to_wire() % SIGNATURES == self.0
    }

    /// The position that reports a transaction: within its commit record, whose begin Postgres compares.
    /// The end itself if the signature does not fit in between.
    pub fn sign(self, commit_lsn: Lsn, end_lsn: Lsn) -> Lsn {
        let signed = self.last_before(end_lsn).filter(|signed| *signed > commit_lsn);
        signed.filter(|_| !on(Mutant::ReportsUnsigned)).unwrap_or(end_lsn)
    }

    /// The position that reports what is between one that is settled and a keepalive's, where no record ends.
    /// That of the keepalive itself if the signature does not fit in between.
    pub fn sign_keepalive(self, before: Lsn, keepalive: Lsn) -> Lsn {
        let is_signed = is_trace(keepalive) || on(Mutant::FinalPositionUnsigned);
        let signed = self.last_before(keepalive).filter(|it| !is_signed && *it >= before);
        signed.unwrap_or(keepalive)
    }

    /// The last position with this signature before that one.
    fn last_before(self, position: Lsn) -> Option<Lsn> {
        let position = position.to_wire();
        let behind = (position + SIGNATURES - self.0) % SIGNATURES;
        position.checked_sub(behind).filter(|_| self.0 > 0).map(Lsn::from_wire)
    }

    /// A position that shows that this relay has taken the slot, for which nothing has been confirmed: it
    /// confirms nothing of the next transaction, whose commit record begins at `commit_lsn`, since
    /// Postgres skips a transaction only if that begins before the confirmed position. No record ends
    /// there. Another one than that of the signature if that does not fit; none if no position is
    /// between the two.
    pub fn trace(self, confirmed: Lsn, commit_lsn: Lsn) -> Option<Lsn> {
        let last = commit_lsn.to_wire().min(confirmed.to_wire() + SIGNATURES);
        let between = (confirmed.to_wire() + 1..=last).map(Lsn::from_wire);
        let traces: Vec<Lsn> = between.filter(|it| is_trace(*it)).collect();
        let any = (self.0 as usize).checked_rem(traces.len()).map(|index| traces[index]);
        traces.into_iter().find(|it| self.is_on(*it)).or(any)
    }
}

/// The positions by which a process tells its own positions of a slot from those of another
/// relay.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPositions {
    pub signature: Signature,
    /// Where the process has found the slot at the lowest. What is before it is from earlier processes.
    pub found: Lsn,
    /// The last position that it has reported, and the last trace, which may have another signature.
    pub reported: Lsn,
    pub traced: Lsn,
}

impl OwnPositions {
    /// Whether another relay has left the slot at this position, also behind what this one has reported:
    /// those reports were lost, and the other one began before them.
    pub fn exclude(self, confirmed: Lsn) -> bool {
        is_trace(confirmed)
            && confirmed > self.found
            && !self.include(confirmed)
            && !on(Mutant::TraceBehindUnseen)
    }

    /// Whether this process has left the slot at this position.
    pub fn include(self, confirmed: Lsn) -> bool {
        confirmed == self.reported || confirmed == self.traced || self.signature.is_on(confirmed)
    }
}

/// Whether no record ends at a position of a slot: a relay has reported it, or left it as its trace.
pub fn is_trace(position: Lsn) -> bool {
    !position.to_wire().is_multiple_of(RECORD_ALIGNMENT)
}

/// Whether a record may begin right behind the position, so that no trace fits in between. Only traces are left there.
pub fn is_last_before_record(position: Lsn) -> bool {
    position.to_wire() % RECORD_ALIGNMENT == RECORD_ALIGNMENT - 1
}

#[derive(Debug, Default)]
pub struct Progress {
    seen: Lsn,
    keepalive: Lsn,
    settled: Lsn,
    reported: Lsn,
    traced: Lsn,
    /// Everything before it was sent in this session, or confirmed before it.
    sent: Lsn,
}

impl Progress {
    /// The walsender has sent everything before `wal_end`.
    pub fn on_keepalive(&mut self, wal_end: Lsn) {
        self.keepalive = self.keepalive.max(wal_end);
        self.sent = self.sent.max(wal_end);
        self.seen = self.seen.max(wal_end);
    }

    /// A session begins, in which the server sends what was committed at `slot_confirmed` or later.
    /// Transactions that the keepalives of the last session declared as sent may be sent again.
    pub fn on_connected(&mut self, slot_confirmed: Lsn) {
        if !on(Mutant::KeepaliveAfterRewind) {
            self.keepalive = Lsn::ZERO;
        }
        self.sent = slot_confirmed;
    }

    /// Counts the WAL that keepalives declared as sent as unconfirmed again.
    pub fn on_rewound(&mut self) {
        if on(Mutant::KeepaliveAfterRewind) {
            return;
        }
        self.keepalive = Lsn::ZERO;
    }

    /// A peer has had the slot: from `floor` on all is received, and must be confirmed, again, whatever
    /// this relay has reported.
    pub fn taken_over(&mut self, floor: Lsn) {
        (self.settled, self.keepalive, self.reported) = (Lsn::ZERO, Lsn::ZERO, floor);
        self.traced = Lsn::ZERO;
        self.on_wal(floor);
    }

    /// A transaction was received to its end, and is reported at this position.
    pub fn on_committed(&mut self, reported_as: Lsn) {
        self.sent = self.sent.max(reported_as);
    }

    pub fn on_wal(&mut self, wal_end: Lsn) {
        self.seen = self.seen.max(wal_end);
    }

    /// Everything before `lsn` is settled.
    pub fn on_settled(&mut self, lsn: Lsn) {
        self.settled = self.settled.max(lsn);
    }

    /// The position to report now, which never goes down within a session. `clear` means that nothing
    /// is unconfirmed or half received.
    pub fn reportable(&self, clear: bool) -> Lsn {
        let safe = if clear { self.settled.max(self.keepalive) } else { self.settled };
        let sent = if on(Mutant::ReportedAhead) { Lsn::from_wire(u64::MAX) } else { self.sent };
        safe.max(self.reported).min(sent)
    }

    /// Whether something is settled that this session has not sent again yet.
    pub fn is_settled_unsent(&self) -> bool {
        self.settled > self.sent
    }

    /// Postgres was told, or knew itself, that everything before `lsn` is confirmed.
    pub fn on_reported(&mut self, lsn: Lsn) {
        self.reported = self.reported.max(lsn);
    }

    /// A trace was reported: no transaction is before it that was not before the slot's position.
    pub fn on_traced(&mut self, position: Lsn) {
        self.on_reported(position);
        self.traced = position;
        self.sent = self.sent.max(position);
    }

    pub fn reported(&self) -> Lsn {
        self.reported
    }

    /// The last trace.
    pub fn traced(&self) -> Lsn {
        self.traced
    }

    /// Everything before this position was sent in this session, or confirmed before it.
    pub fn sent(&self) -> Lsn {
        self.sent
    }

    pub fn seen(&self) -> Lsn {
        self.seen
    }

    pub fn settled(&self) -> Lsn {
        self.settled
    }

    /// For another timeline, where positions of this one mean nothing.
    pub fn forget(&mut self) {
        *self = Progress::default();
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;

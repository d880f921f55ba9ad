//! Which positions the last session of this file has reported to Postgres, to tell whether another
//! relay has had the slot since.
//!
//! Another relay may have repeated events and confirmed none of them. So whoever takes the slot
//! leaves a trace in it before it publishes, and reports positions of its own
//! ([`crate::source::progress::Signature`]). The slot is as the session has left it if it stands where
//! the session has found it, at one of its last reports, or at an earlier one that has its signature: Postgres
//! may not have read the last ones. A Postgres that was restarted sets the slot back to an older
//! position: to one that no other relay has signed. A crash may have undone what another relay has
//! reported: so after a crash no marks count where another relay was seen ([`super::marks`]).

use super::header::{REPORTS, REPORTS_MADE, SIGNATURE, Words};
use crate::base::lsn::Lsn;
use crate::source::progress::{self, Signature};

pub struct Reports<'a>(pub &'a Words);

impl Reports<'_> {
    /// A session takes the slot, which stands at `confirmed`. The reports of earlier sessions do not count any
    /// more: Postgres has read them or never will. Where a crash has undone them, another relay may report
    /// the same positions.
    pub fn begin(&self, confirmed: Lsn, signature: Signature) {
        self.0.store(REPORTS_MADE, 0);
        self.0.store(SIGNATURE, signature.to_word());
        self.push(confirmed);
    }

    /// Called when the report is on its way.
    pub fn push(&self, position: Lsn) {
        let Reports(words) = self;
        let made = words.load(REPORTS_MADE);
        let at = |number: u64| REPORTS.start + number as usize % REPORTS.len();
        if made == 0 || words.load(at(made - 1)) != position.to_wire() {
            words.store(at(made), position.to_wire());
            words.store(REPORTS_MADE, made + 1);
        }
    }

    /// Whether another relay has had the slot, which stands at `confirmed` now.
    pub fn show_another_relay(&self, confirmed: Lsn) -> bool {
        let Reports(words) = self;
        let made = words.load(REPORTS_MADE).min(REPORTS.len() as u64) as usize;
        let reports = || REPORTS.take(made).map(|at| Lsn::from_wire(words.load(at)));
        let is_own = Signature::of_word(words.load(SIGNATURE)).is_on(confirmed);
        let is_earlier = is_own && reports().any(|report| confirmed < report);
        let is_before_all = made > 0 && reports().all(|report| confirmed < report);
        let is_set_back = is_before_all && !progress::is_trace(confirmed);
        !(reports().any(|report| report == confirmed) || is_earlier || is_set_back)
    }
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;

//! How far into a transaction everything is confirmed, in a few words whatever its size.
//!
//! A transaction of a million events is confirmed in order but for what is in flight, and Postgres is
//! told only once all of it is. For the next process, marks of single events reach back only so far;
//! a [`ConfirmedPrefix`] says of all before them: the first so many events are confirmed, and this is
//! their digest.
//!
//! A number alone could pass over the wrong events, because which changes count as events depends on
//! the configuration. So the next process takes the claim on trust only until it has received as many
//! events: then their digest must be the same, or it begins anew without the claim
//! ([`Prefixes::admitted`]). Until then nothing of the transaction can be reported, since its
//! commit comes behind all of its events.

use std::collections::VecDeque;

use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;

/// Events between two prefixes that can be claimed.
pub const STEP: u64 = 1024;

/// The first events of a transaction, all of which are confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfirmedPrefix {
    pub commit_lsn: Lsn,
    pub events: u64,
    pub digest: u64,
}

impl ConfirmedPrefix {
    #[inline]
    pub fn contains(&self, position: Position) -> bool {
        position.commit_lsn == self.commit_lsn && position.ordinal < self.events
    }
}

/// The claim of an earlier process about this transaction is refuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixRefuted;

/// The prefixes of the transaction that is being received, as far as its events were admitted one after
/// the other.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// The event behind those.
    next: Position,
    /// The digest of the events before; none if one of them was not identified, or not
    /// admitted here.
    digest: Option<u64>,
    /// Its first events were confirmed by another broker: nothing is claimed of it.
    is_unclaimed: bool,
    /// The claim that an earlier process has left, until it is verified.
    claim: Option<ConfirmedPrefix>,
    /// Prefixes of this transaction and of those before it, each with the number of the event behind
    /// it: once all events below that are settled, it is confirmed.
    unconfirmed: VecDeque<(Sequence, ConfirmedPrefix)>,
}

impl Prefixes {
    /// An earlier process has left this.
    pub fn claim(&mut self, claim: ConfirmedPrefix) {
        self.claim = Some(claim);
    }

    /// The event at this position was admitted, whose fingerprint is 0 if it was not identified; `next`
    /// is the number of the one behind it.
    #[inline]
    pub fn admitted(
        &mut self,
        position: Position,
        event: u64,
        next: Sequence,
    ) -> Result<(), PrefixRefuted> {
        if position.ordinal == 0 {
            self.digest = Some(position.commit_lsn.to_wire());
            self.is_unclaimed = false;
        } else if self.next != position {
            self.digest = None;
        }
        let digest = self.digest.filter(|_| event != 0);
        self.digest = digest
            .map(|digest| (digest.rotate_left(5) ^ event).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.next = Position { ordinal: position.ordinal + 1, ..position };
        if self.next.ordinal.is_multiple_of(STEP) { self.step(next) } else { Ok(()) }
    }

    fn step(&mut self, next: Sequence) -> Result<(), PrefixRefuted> {
        let Prefixes { next: Position { commit_lsn, ordinal: events }, digest, .. } = *self;
        if let Some(claim) = self.claim.filter(|claim| claim.commit_lsn == commit_lsn) {
            if events < claim.events {
                return Ok(());
            }
            self.claim = None;
            if events != claim.events || digest != Some(claim.digest) {
                return Err(PrefixRefuted);
            }
        }
        let prefix = digest.filter(|_| !self.is_unclaimed).map(|digest| ConfirmedPrefix {
            commit_lsn,
            events,
            digest,
        });
        // After a rewind the same events come again.
        if self.unconfirmed.back().is_none_or(|last| last.0 < next) {
            self.unconfirmed.extend(prefix.map(|prefix| (next, prefix)));
        }
        Ok(())
    }

    /// Every event below this one is settled. Returns the longest prefix that is confirmed only now.
    pub fn settled(&mut self, settled_below: Sequence) -> Option<ConfirmedPrefix> {
        let mut confirmed = None;
        while let Some((_, prefix)) = self.unconfirmed.front().filter(|it| it.0 <= settled_below) {
            confirmed = Some(*prefix);
            self.unconfirmed.pop_front();
        }
        confirmed
    }

    /// This transaction ends. A claim of more events than it has is refuted.
    pub fn end_transaction(&mut self, commit_lsn: Lsn) -> Result<(), PrefixRefuted> {
        match self.claim.take_if(|claim| claim.commit_lsn == commit_lsn) {
            Some(_) => Err(PrefixRefuted),
            None => Ok(()),
        }
    }

    /// Another broker confirms from here on, which does not have what was confirmed before. A claim is
    /// still to be verified.
    pub fn forget_prefix(&mut self) {
        self.unconfirmed.clear();
        self.is_unclaimed = true;
    }

    pub fn forget(&mut self) {
        *self = Prefixes::default();
    }
}

#[cfg(test)]
#[path = "prefix_tests.rs"]
mod tests;

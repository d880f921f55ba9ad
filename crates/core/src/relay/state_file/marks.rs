//! The marks of confirmed events: a ring in the state file, in the order of the confirms.
//!
//! Marks are written with `pwrite` and not through the mapping, whose pages would count as memory of
//! this process. They are written before the positions of their events are reported to Postgres, so
//! a mark that is missing belongs to an event that will be sent again and is then published again.

use std::io;

use super::header::{
    self, BOOT, BROKER, MARK_BYTES, MARKS, PEER_SEEN, PREFIX_COPY, PREFIXES, SERVER_RUN, WRITTEN,
    Words,
};
use super::reports::Reports;
use crate::base::event::{Position, give_back};
use crate::base::lsn::Lsn;
use crate::delivery::known::{Fingerprint, Mark};
use crate::delivery::prefix::ConfirmedPrefix;
use crate::mutants::{Mutant, on};
use crate::source::progress::Signature;
use crate::source::sightings::PEER_REMEMBERED;

/// In the ordinal of a mark: the broker has the event's dead letter.
const DEAD_LETTER: u32 = 1 << 31;

/// A ring of marks; without memory no event is marked.
#[derive(Debug, Default)]
pub struct MarkRing {
    ring: Option<Ring>,
    /// Fingerprint of the broker that confirms events; 0 as long as it is not known.
    broker: u64,
    signature: Signature,
    /// Another relay was seen to hold the slot.
    peer_held: bool,
}

#[derive(Debug)]
struct Ring {
    words: Words,
    unwritten: Vec<u8>,
}

/// The facts that this process knows of itself and of the slot, by which it judges the marks of an
/// earlier one.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// The file was written for the same slot, on the same timeline of the same system.
    pub same_place: bool,
    /// Fingerprint of the machine's start, if it is known.
    pub boot: Option<u64>,
    pub session: SlotSession,
}

/// A session that holds the slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotSession {
    /// Where the slot stands. It may be before what this process has reported: those reports were lost.
    pub confirmed: Lsn,
    /// Fingerprint of the run of the server, if it is known.
    pub run: Option<u64>,
    /// Another relay of the slot was seen.
    pub peer_seen: bool,
    /// When it was opened.
    pub unix_us: i64,
}

impl MarkRing {
    /// Begins to use the ring. Returns the encoded marks that an earlier process has left, and what it
    /// knew to be confirmed of a transaction; none if they do not apply.
    pub fn take_over(
        &mut self,
        words: Words,
        successor: Successor,
    ) -> (Vec<u8>, Option<ConfirmedPrefix>) {
        let mut ring = Ring { words, unwritten: Vec::new() };
        let left = match self.peer_held {
            true => Err("another relay was seen to hold the slot"),
            false => ring.left_by_others(&successor, self.broker),
        };
        let left = left.unwrap_or_else(|why| {
            tracing::info!(why, "the marks in the state file are ignored");
            Vec::new()
        });
        if left.is_empty() {
            ring.clear();
        }
        let prefix = ring.prefix();
        ring.words.store(BOOT, successor.boot.unwrap_or_default());
        ring.words.store(BROKER, self.broker);
        ring.hold(successor.session, self.signature);
        self.ring = Some(ring);
        (left, prefix)
    }

    /// This process holds the slot in a further session from here on.
    pub fn hold_again(&mut self, session: SlotSession) {
        self.ring.iter_mut().for_each(|ring| ring.hold(session, self.signature));
    }

    /// Another relay of the slot was seen beside this one.
    pub(super) fn peer_seen(&self, unix_us: i64) {
        if let Some(Ring { words, .. }) = &self.ring
            && words.load(PEER_SEEN) != seconds(unix_us)
        {
            words.store(PEER_SEEN, seconds(unix_us));
        }
    }

    /// Another relay was seen to hold the slot. Its trace may be missing: Postgres had not read it when
    /// the walsender ended.
    pub fn peer_held(&mut self) {
        self.peer_held = !on(Mutant::MarksAfterPeer);
    }

    /// Whether another relay of the slot was seen in the last day, by this process or an earlier one.
    pub fn remembers_peer(&self, unix_us: i64) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.remembers_peer(unix_us))
    }

    /// The process reports with this signature from its next session on.
    pub fn signature(&mut self, signature: Signature) {
        self.signature = signature;
    }

    /// Events are confirmed by this broker from here on. What another one has confirmed is not marked
    /// any more: true then. What was marked before the broker was known may be of another one.
    pub fn broker(&mut self, broker: u64) -> bool {
        if broker == self.broker || broker == 0 {
            return false;
        }
        let has_marked = self.ring.as_ref().is_some_and(|ring| ring.words.load(WRITTEN) > 0);
        let is_another = self.broker != 0 || has_marked;
        if is_another {
            self.forget();
        }
        self.broker = broker;
        if let Some(ring) = &self.ring {
            ring.words.store(BROKER, broker);
        }
        is_another
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.ring.is_some()
    }

    /// The broker has confirmed this event, or its dead letter.
    pub fn push(&mut self, mark: Mark) {
        if let Some(ring) = &mut self.ring
            && let Some(bytes) = encode(mark)
        {
            ring.unwritten.extend_from_slice(&bytes);
        }
    }

    pub fn has_unwritten(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| !ring.unwritten.is_empty())
    }

    /// Writes what was pushed. A file that cannot be written is not used any more: its marks would
    /// not tell what was repeated since.
    pub fn write(&mut self) {
        let Some(ring) = self.ring.as_mut().filter(|ring| !ring.unwritten.is_empty()) else {
            return;
        };
        if let Err(error) = ring.write() {
            tracing::warn!(code = "state-file.unwritten", error = %error, "the state file cannot be written: confirmed events are not marked any more");
            self.forget();
            self.ring = None;
        }
    }

    /// Another timeline, or another relay has confirmed events: the marks do not apply any more.
    pub fn forget(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.clear();
        }
    }

    /// This is confirmed of a transaction.
    pub fn prefix(&self, prefix: ConfirmedPrefix) {
        let Some(Ring { words, .. }) = &self.ring else { return };
        // The process may die between any two of these.
        let copy = if words.load(PREFIX_COPY) == 1 { 2 } else { 1 };
        let ConfirmedPrefix { commit_lsn, events, digest } = prefix;
        let at = PREFIXES[copy - 1];
        for (word, value) in (at..).zip([commit_lsn.to_wire(), events, digest]) {
            words.store(word, value);
        }
        words.store(PREFIX_COPY, copy as u64);
    }

    /// This position was reported to Postgres. Noted afterwards: a slot that is ahead of it is
    /// taken for one that another relay has moved.
    pub fn reported(&self, confirmed: Lsn) {
        if let Some(ring) = &self.ring {
            Reports(&ring.words).push(confirmed);
        }
    }
}

impl Ring {
    /// This process holds the slot in this session from here on.
    fn hold(&mut self, session: SlotSession, signature: Signature) {
        if self.may_have_lost_a_peer(session) {
            self.clear();
        }
        if session.peer_seen {
            self.words.store(PEER_SEEN, seconds(session.unix_us));
        }
        self.words.store(SERVER_RUN, session.run.unwrap_or_default());
        Reports(&self.words).begin(session.confirmed, signature);
    }

    /// Whether Postgres may have lost the position by which another relay has shown that it had the slot.
    fn may_have_lost_a_peer(
        &self,
        SlotSession { run, peer_seen, unix_us, .. }: SlotSession,
    ) -> bool {
        let is_same_run = run.is_some_and(|run| run == self.words.load(SERVER_RUN));
        let has_peer = peer_seen || self.remembers_peer(unix_us);
        !is_same_run && has_peer && !on(Mutant::MarksAfterCrash)
    }

    fn remembers_peer(&self, unix_us: i64) -> bool {
        let seen = self.words.load(PEER_SEEN);
        let age = seconds(unix_us).saturating_sub(seen);
        seen != 0 && age <= PEER_REMEMBERED.as_secs()
    }

    fn clear(&mut self) {
        self.unwritten.clear();
        self.words.store(WRITTEN, 0);
        self.words.store(PREFIX_COPY, 0);
    }

    fn prefix(&self) -> Option<ConfirmedPrefix> {
        let copy = usize::try_from(self.words.load(PREFIX_COPY)).ok()?.checked_sub(1)?;
        let [commit_lsn, events, digest] =
            [0, 1, 2].map(|word| PREFIXES.get(copy).map(|at| self.words.load(at + word)));
        let commit_lsn = Lsn::from_wire(commit_lsn?);
        Some(ConfirmedPrefix { commit_lsn, events: events?, digest: digest? })
    }

    /// Marks of an earlier process. After a restart of the machine they are not believed, because
    /// the broker may have lost what it had not written to disk; nor after another relay has
    /// had the slot, because it may have repeated some of the events; nor where Postgres may have lost
    /// the position that shows it.
    fn left_by_others(&self, successor: &Successor, broker: u64) -> Result<Vec<u8>, &'static str> {
        let written = self.words.load(WRITTEN);
        if written == 0 {
            return Ok(Vec::new());
        }
        if !successor.same_place {
            return Err("they are of another system, timeline or slot, or of another version");
        }
        let is_same_broker = broker != 0 && broker == self.words.load(BROKER);
        if !is_same_broker && !on(Mutant::MarksOfOtherBroker) {
            return Err("they are of another broker, or it is not known which one confirms");
        }
        let is_same_boot = successor.boot == Some(self.words.load(BOOT));
        if !is_same_boot && !on(Mutant::MarksAfterReboot) {
            return Err("the machine has been restarted since");
        }
        if self.may_have_lost_a_peer(successor.session) {
            return Err("postgres was restarted or has crashed since, and there is another relay");
        }
        let is_after_peer = Reports(&self.words).show_another_relay(successor.session.confirmed);
        if is_after_peer && !on(Mutant::MarksAfterPeer) {
            return Err("another relay has had the slot since, or it was moved or made anew");
        }
        self.read(written).map_err(|_| "the file is cut off")
    }

    /// The oldest first.
    fn read(&self, written: u64) -> io::Result<Vec<u8>> {
        let next = (written % MARKS) as usize * MARK_BYTES;
        let mut bytes = vec![0; written.min(MARKS) as usize * MARK_BYTES];
        let older = if written > MARKS { bytes.len() - next } else { 0 };
        let (old, new) = bytes.split_at_mut(older);
        self.words.read_at(old, (header::BYTES + next) as u64)?;
        self.words.read_at(new, header::BYTES as u64)?;
        Ok(bytes)
    }

    fn write(&mut self) -> io::Result<()> {
        let mut rest = self.unwritten.as_slice();
        while !rest.is_empty() {
            let written = self.words.load(WRITTEN);
            let index = written % MARKS;
            let room = (MARKS - index) as usize * MARK_BYTES;
            let (now, later) = rest.split_at(rest.len().min(room));
            self.words.write_at(now, header::BYTES as u64 + index * MARK_BYTES as u64)?;
            self.words.store(WRITTEN, written + (now.len() / MARK_BYTES) as u64);
            rest = later;
        }
        self.unwritten.clear();
        give_back(&mut self.unwritten);
        Ok(())
    }
}

/// Converts microseconds since the Unix epoch, also of a clock that is set before it.
pub(super) fn seconds(unix_us: i64) -> u64 {
    unix_us.max(0).cast_unsigned() / 1_000_000
}

/// `None` for an event whose ordinal has no room.
fn encode(mark: Mark) -> Option<[u8; MARK_BYTES]> {
    let Mark { position, fingerprint: Fingerprint { event, key }, is_dead_letter } = mark;
    let ordinal = u32::try_from(position.ordinal).ok().filter(|it| it & DEAD_LETTER == 0)?;
    let ordinal = if is_dead_letter { ordinal | DEAD_LETTER } else { ordinal };
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&position.commit_lsn.to_wire().to_ne_bytes());
    bytes[8..12].copy_from_slice(&ordinal.to_ne_bytes());
    bytes[12..16].copy_from_slice(&key.to_ne_bytes());
    bytes[16..].copy_from_slice(&event.to_ne_bytes());
    Some(bytes)
}

pub fn decode(bytes: &[u8; MARK_BYTES]) -> Mark {
    let word = |at: usize| std::array::from_fn(|index| bytes[at + index]);
    let half = |at: usize| std::array::from_fn(|index| bytes[at + index]);
    let commit_lsn = Lsn::from_wire(u64::from_ne_bytes(word(0)));
    let ordinal = u32::from_ne_bytes(half(8));
    let position = Position { commit_lsn, ordinal: u64::from(ordinal & !DEAD_LETTER) };
    let (key, event) = (u32::from_ne_bytes(half(12)), u64::from_ne_bytes(word(16)));
    let is_dead_letter = ordinal & DEAD_LETTER != 0;
    Mark { position, fingerprint: Fingerprint { event, key }, is_dead_letter }
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;

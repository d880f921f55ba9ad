//! Checks that a new session continues the slot that this relay has read before, and ends the last
//! session.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::mutants::{Mutant, on};
use crate::relay::control::{
    ConfirmedPosition, Mover, OpenedSession, PeerProgress, Seen, SystemTimeline,
};
use crate::relay::faults;
use crate::relay::ports::{Clock, Database};
use crate::relay::state_file::marks::MarkRing;
use crate::source::progress::{self, OwnPositions, TRACE_BYTES_MAX};
use crate::source::server::ServerRun;
use crate::source::settings::SourceSettings;
use crate::source::sightings::Sightings;
use crate::source::stream::{Stream, StreamError};

/// How long the server may take to answer CopyDone.
const END_ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// The properties of the slot that must not change from session to session.
#[derive(Clone, Debug)]
pub(super) struct KnownSlot {
    pub(super) place: SystemTimeline,
    /// The run of the server in which the last session began.
    pub(super) run: ServerRun,
    /// The walsender of the last session.
    pub(super) own_pid: i32,
    /// Everything before this position was confirmed when the last session began.
    pub(super) floor: Lsn,
    /// Where this process has found the slot at the lowest. What stands before it is from earlier processes.
    pub(super) found: Lsn,
    /// A peer was seen to hold the slot since: it may have published again what this relay knows.
    pub(super) peer_held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    First,
    /// Positions of the old timeline mean nothing on this one.
    OtherTimeline,
    Same,
    /// The same slot, in which another relay has confirmed events in the meantime.
    AfterPeers,
}

/// Where a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionStart {
    /// Everything before it is confirmed, and no peer has published it since.
    pub(super) floor: Lsn,
    /// Everything before it was confirmed. It may be ahead of the floor.
    pub(super) known: Lsn,
    pub(super) continuation: Continuation,
}

impl SessionStart {
    /// Whether a peer has had the slot since this relay had it, or may have.
    pub(super) fn is_takeover(self, opened: &OpenedSession) -> bool {
        match self.continuation {
            Continuation::First => false,
            Continuation::AfterPeers => true,
            _ if on(Mutant::TakeoverUnseen) => false,
            Continuation::Same | Continuation::OtherTimeline => opened.seen.peer_may_have_held,
        }
    }

    /// Whether what comes may have been published and was not confirmed. On another timeline this
    /// relay does not know what it has published; an event has the position, the time of its commit and
    /// the content of a record only if both are of the WAL that the timelines share.
    pub(super) fn reads_topics(self, is_takeover: bool) -> bool {
        match self.continuation {
            Continuation::First | Continuation::OtherTimeline => true,
            _ if on(Mutant::TopicsUnreadAfterPeer) => false,
            Continuation::Same | Continuation::AfterPeers => is_takeover,
        }
    }

    /// Until when everything before the known position was committed, by the server's clock; the oldest
    /// time if the session says nothing new of that. A position ahead of the slot's was seen at a peer, or
    /// reported, before the session, and Postgres may have gone back since.
    pub(super) fn committed_until_us(self, opened: &OpenedSession) -> i64 {
        if self.known <= opened.slot_confirmed {
            return opened.looked_unix_us;
        }
        let peers = opened.seen.peers.filter(|peers| peers.confirmed >= self.known);
        let nothing_new =
            if on(Mutant::ReportedTimeRenewed) { opened.looked_unix_us } else { i64::MIN };
        peers.map_or(nothing_new, |peers| peers.seen_unix_us)
    }
}

/// Compares a session with the slot as it was `known`, the position up to which this relay knows
/// everything to be confirmed, and the newest position it has `received`. `last` is where an earlier
/// process read the slot, and how far the WAL had come.
pub(super) fn judge(
    source: &SourceSettings,
    known: Option<(&KnownSlot, Lsn)>,
    received: Lsn,
    opened: &OpenedSession,
    last: Option<&(SystemTimeline, Lsn)>,
) -> Result<SessionStart, Fault> {
    let OpenedSession { place, slot_confirmed, wal_end, seen, .. } = opened;
    let Seen { peers, mover, .. } = seen;
    let (wal_end, slot_confirmed) = (*wal_end, *slot_confirmed);
    let start = |floor, continuation| Ok(SessionStart { floor, known: floor, continuation });
    let by_peers = peers.map_or(Lsn::ZERO, |peers| peers.confirmed);
    let Some((known, ours)) = known else {
        let last = last.filter(|_| !on(Mutant::LastPlaceForgotten));
        let other =
            last.and_then(|last| not_the_last(source, last, place, wal_end, slot_confirmed));
        other.map_or(Ok(()), Err)?;
        // Where peers were seen, it was watched since then.
        if peers.is_some() && *mover != Mover::Unseen && slot_confirmed > by_peers {
            return Err(faults::slot_moved(source, by_peers, slot_confirmed, mover));
        }
        let known = by_peers.max(slot_confirmed);
        if wal_end < known {
            return Err(faults::went_back(source, known, wal_end, slot_confirmed));
        }
        // Postgres may have crashed since the peer confirmed, and the peer may have begun again there.
        let floor = if on(Mutant::FirstFloorByPeers) { known } else { slot_confirmed };
        return Ok(SessionStart { floor, known, continuation: Continuation::First });
    };
    if known.place.system_id != place.system_id {
        return Err(faults::system_changed(source, &known.place.system_id, &place.system_id));
    }
    if let Some(fault) = earlier_timeline(source, &known.place, place) {
        return Err(fault);
    }
    if known.place != *place && !on(Mutant::SkipAcrossTimeline) {
        tracing::warn!(
            code = "slot.other-timeline",
            from = known.place.timeline,
            to = place.timeline,
            "postgres is on another timeline: nothing is known there, events may repeat"
        );
        return start(slot_confirmed, Continuation::OtherTimeline);
    }
    let floor = by_peers.max(ours);
    // A relay that was not seen has taken the slot and confirmed nothing.
    let is_trace =
        progress::is_trace(slot_confirmed) && slot_confirmed.bytes_since(floor) <= TRACE_BYTES_MAX;
    if slot_confirmed > floor && !is_trace && !on(Mutant::MoverUnchecked) {
        return Err(faults::slot_moved(source, floor, slot_confirmed, mover));
    }
    let floor = floor.max(slot_confirmed);
    let received = received.max(floor);
    if wal_end < received && !on(Mutant::WalEndUnchecked) {
        return Err(faults::went_back(source, received, wal_end, slot_confirmed));
    }
    // A peer has begun where the slot stood, and that may be before what this relay has reported, or
    // another peer was seen to confirm: reports are lost with a connection, and with a Postgres that
    // crashes. What the peer has published again would be the last of its keys.
    let first_repeated = if on(Mutant::FloorByOwnReport) { floor } else { slot_confirmed };
    if floor == ours {
        let floor = if seen.peer_may_have_held { first_repeated } else { floor };
        return start(floor, Continuation::Same);
    }
    let seen_unix_us = opened.looked_unix_us;
    let peers = peers.unwrap_or(PeerProgress { confirmed: floor, seen_unix_us, gap: None });
    log_takeover(&source.slot, ours, peers);
    start(first_repeated, Continuation::AfterPeers)
}

/// The fault if a process reads at `place`, where the WAL ends at `wal_end`, although the `last` one
/// read another system, or farther. A slot that is ahead of that position is no fault, because a peer may
/// have moved it. With the fault, the events after `slot_confirmed` are in doubt.
pub fn not_the_last(
    source: &SourceSettings,
    last: &(SystemTimeline, Lsn),
    place: &SystemTimeline,
    wal_end: Lsn,
    slot_confirmed: Lsn,
) -> Option<Fault> {
    let (last, seen) = last;
    if last.system_id != place.system_id {
        return Some(faults::system_changed(source, &last.system_id, &place.system_id));
    }
    earlier_timeline(source, last, place).or_else(|| {
        let is_behind = last == place && wal_end < *seen;
        is_behind.then(|| faults::went_back(source, *seen, wal_end, slot_confirmed))
    })
}

/// The fault if the timeline of a server is an earlier one than the `known` one: timelines only rise.
fn earlier_timeline(
    source: &SourceSettings,
    known: &SystemTimeline,
    place: &SystemTimeline,
) -> Option<Fault> {
    let (known, found) = (known.timeline, place.timeline);
    (found < known).then(|| faults::earlier_timeline(source, known, found))
}

/// A peer has published the events between the two positions. A long gap between two looks at the
/// slot could hide something else, so a person should check it.
fn log_takeover(slot: &str, from: Lsn, peers: PeerProgress) {
    let PeerProgress { confirmed: to, gap, .. } = peers;
    let Some(gap) = gap else {
        tracing::info!(slot, %from, %to, "another relay has confirmed events: going on after them");
        return;
    };
    tracing::warn!(
        code = "slot.peer-gone", slot, %from, %to, gap_s = gap.as_secs(),
        "another relay held the slot when it was last seen, or had a session then, and was not seen \
         to confirm this: going on after what the slot has confirmed; if anybody advanced or re-created the slot since, compare the \
         outbox rows committed between from and to with the broker"
    );
}

/// Ends the stream; true when the server has answered, and so has read the last status update.
pub(super) fn end(mut stream: Stream, clock: &dyn Clock) -> bool {
    let deadline = clock.instant() + END_ANSWERED_WITHIN;
    let outcome = stream.send_copy_done().map_err(StreamError::Io).and_then(|()| {
        while clock.instant() < deadline {
            stream.wait(Duration::from_millis(20), None, clock.instant())?;
            stream.fill(clock.instant())?;
            while let Some((_, length)) = stream.peek()? {
                stream.consume(length);
            }
        }
        Ok(())
    });
    match &outcome {
        Err(StreamError::Ended) => tracing::debug!("the server has the final position"),
        Err(error) => tracing::debug!(error = %error, "the stream broke before its end"),
        Ok(()) => tracing::debug!("the server did not answer the end of the stream"),
    }
    matches!(outcome, Err(StreamError::Ended))
}

/// Reports the last position without a stream. Otherwise the next process would publish again what
/// the broker has confirmed since the last report.
pub(super) fn confirm_over_sql(
    database: &dyn Database,
    slot: &KnownSlot,
    lsn: Lsn,
    own: OwnPositions,
    peer_seen: bool,
) {
    let KnownSlot { place, run, own_pid, floor, peer_held, .. } = slot.clone();
    if lsn <= floor || peer_held && !on(Mutant::ConfirmsBehindPeer) {
        return;
    }
    match database.confirm(ConfirmedPosition { lsn, place, run, own_pid, own, peer_seen }) {
        Ok(()) => tracing::info!(confirmed = %lsn, "the slot has the final position"),
        Err(why) => tracing::warn!(
            code = "slot.position-unreported", confirmed = %lsn, why,
            "the final position could not be reported: what was confirmed since the last report is published again at the next start"
        ),
    }
}

/// Whether another relay of the slot was seen in the last day, by this process or an earlier one.
pub(super) fn remembers_peer(marks: &MarkRing, sightings: &Sightings, now: Moment) -> bool {
    marks.remembers_peer(now.unix_us) || sightings.remembers_peer(now.instant)
}

#[cfg(test)]
#[path = "session_tests.rs"]
pub(super) mod tests;

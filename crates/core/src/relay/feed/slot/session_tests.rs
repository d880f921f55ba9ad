use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::base::clock::Moment;
use crate::relay::control::Mover;
use crate::relay::ports::{CatalogLink, SessionLink, WalsenderLink};
use crate::relay::state_file::marks::SlotSession;
use crate::relay::testing::{MemoryFile, walsender};
use crate::source::catalog::Catalog;
use crate::source::slot_state::HeldSlot;
use crate::source::stream::tests::Backlog;
use crate::testing::lsn;

fn place(system_id: &str, timeline: u32) -> SystemTimeline {
    SystemTimeline { system_id: system_id.to_owned(), timeline }
}

/// A session of system 7 on timeline 1, whose slot stands at a position, and where the WAL ends at 800.
pub(in crate::relay::feed::slot) fn opened(slot_confirmed: u64) -> OpenedSession {
    let now = Instant::now();
    let seen = Seen {
        peers: None,
        mover: Mover::Unseen,
        peer_may_have_held: false,
        peer_held: false,
        signed: Lsn::ZERO,
    };
    OpenedSession {
        wire: Box::new(Backlog::of(b"")),
        walsender: walsender(1),
        place: place("7", 1),
        slot_confirmed: lsn(slot_confirmed),
        looked_unix_us: 70,
        wal_end: lsn(800),
        seen,
        in_doubt: None,
        wal_sender_timeout: None,
        catalog: Catalog::default(),
        heard_at: now,
        opened_at: now,
    }
}

/// The same, after peers that were seen to confirm up to a position.
fn after_peers(slot_confirmed: u64, confirmed: u64) -> OpenedSession {
    let mut opened = opened(slot_confirmed);
    let peers = PeerProgress { confirmed: lsn(confirmed), seen_unix_us: 60, gap: None };
    opened.seen.peers = Some(peers);
    opened.seen.peer_may_have_held = true;
    opened
}

fn known_slot() -> KnownSlot {
    KnownSlot {
        place: place("7", 1),
        run: ServerRun::default(),
        own_pid: 1,
        floor: lsn(80),
        found: lsn(40),
        peer_held: false,
    }
}

/// Judges a session of a relay that has reported a position, or the first one of a process if there is none.
/// Returns the floor, up to where all is known to be confirmed, and the kind; or the code of the fault.
fn judged(
    ours: Option<u64>,
    opened: &OpenedSession,
) -> Result<(u64, u64, Continuation), &'static str> {
    let known = known_slot();
    let known = ours.map(|ours| (&known, lsn(ours)));
    let start = judge(&SourceSettings::default(), known, lsn(400), opened, None);
    let start = start.map_err(|fault| fault.code)?;
    Ok((start.floor.to_wire(), start.known.to_wire(), start.continuation))
}

#[test]
fn the_first_session_begins_where_the_slot_stands() {
    assert_eq!(judged(None, &opened(80)), Ok((80, 80, Continuation::First)));
    assert_eq!(judged(None, &after_peers(80, 160)), Ok((80, 160, Continuation::First)));
    let judged_at = |wal_end| judged(None, &OpenedSession { wal_end, ..after_peers(80, 160) });
    assert_eq!(judged_at(lsn(160)), Ok((80, 160, Continuation::First)));
    assert_eq!(judged_at(lsn(152)), Err("slot.went-back"));
}

#[test]
fn the_range_in_doubt_of_a_first_session_begins_at_the_slot() {
    // GIVEN an earlier process that has read farther than the WAL goes
    let (source, last) = (SourceSettings::default(), (place("7", 1), lsn(900)));
    let fault = judge(&source, None, Lsn::ZERO, &opened(80), Some(&last)).unwrap_err();
    assert_eq!(fault.code, "slot.went-back");
    let doubt = fault.doubt.as_deref().map(|doubt| (doubt.from, doubt.to));
    assert_eq!(doubt, Some((lsn(80), lsn(900))));
}

#[test]
fn a_first_session_is_refused_if_the_slot_was_seen_to_be_moved_after_a_peer_had_it() {
    let begun_by = |mut opened: OpenedSession, mover: Mover| {
        opened.seen.mover = mover;
        judged(None, &opened)
    };
    let first = Ok((168, 168, Continuation::First));
    for mover in [Mover::Recreated, Mover::Program("psql".to_owned())] {
        assert_eq!(begun_by(after_peers(168, 160), mover.clone()), Err("slot.moved"), "{mover:?}");
        // Of what was before nothing is known.
        assert_eq!(begun_by(opened(168), mover.clone()), first);
        // It stands where the peer had it.
        let at_peer = Ok((160, 160, Continuation::First));
        assert_eq!(begun_by(after_peers(160, 160), mover), at_peer);
    }
    assert_eq!(begun_by(after_peers(168, 160), Mover::Unseen), first);
}

#[test]
fn a_slot_beyond_what_relays_have_confirmed_was_moved_unless_it_has_a_trace() {
    let after = |position| Ok((position, position, Continuation::AfterPeers));
    for (ours, slot_confirmed, judgement) in [
        (80, 160, Err("slot.moved")),
        (80, 111, after(111)),
        // A record ends there.
        (81, 112, Err("slot.moved")),
        // As far as a trace is behind the position of a slot at most, and farther.
        (81, 113, after(113)),
        (81, 114, Err("slot.moved")),
    ] {
        assert_eq!(judged(Some(ours), &opened(slot_confirmed)), judgement, "{slot_confirmed}");
    }
    assert_eq!(judged(Some(80), &after_peers(168, 160)), Err("slot.moved"));
}

#[test]
fn positions_of_another_system_or_timeline_mean_nothing() {
    let judged_at = |place| judged(Some(160), &OpenedSession { place, ..opened(80) });
    assert_eq!(judged_at(place("8", 1)), Err("slot.other-system"));
    assert_eq!(judged_at(place("7", 2)), Ok((80, 80, Continuation::OtherTimeline)));
    // A primary from before the failover.
    assert_eq!(judged_at(place("7", 0)), Err("slot.earlier-timeline"));
}

/// A clock that goes on by half a second at every look.
struct Looks {
    began: Instant,
    looks: Mutex<u32>,
}

impl Clock for Looks {
    fn now(&self) -> Moment {
        let mut looks = self.looks.lock().unwrap();
        *looks += 1;
        Moment { instant: self.began + Duration::from_millis(500) * *looks, unix_us: 0 }
    }

    fn sleep(&self, _: Duration) {}
}

#[test]
fn the_end_of_a_stream_is_awaited_for_two_seconds() {
    for (answer, is_read) in [(&b"c\0\0\0\x04"[..], true), (b"", false)] {
        let clock = Looks { began: Instant::now(), looks: Mutex::default() };
        let stream = Stream::new(Box::new(Backlog::of(answer)), clock.began);
        assert_eq!(end(stream, &clock), is_read);
        assert!(*clock.looks.lock().unwrap() < 20);
    }
}

#[derive(Clone, Default)]
struct Confirms(Arc<Mutex<Vec<Lsn>>>);

impl Database for Confirms {
    fn sessions(&self) -> SessionLink {
        unreachable!("no session is asked for")
    }

    fn walsender(&self) -> WalsenderLink {
        unreachable!("no walsender is asked about")
    }

    fn read_catalog(&self) -> CatalogLink {
        unreachable!("no catalog is asked for")
    }

    fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        self.0.lock().unwrap().push(position.lsn);
        Ok(())
    }
}

#[test]
fn a_final_position_is_confirmed_over_sql_if_it_is_ahead_and_no_peer_has_had_the_slot() {
    for (position, peer_held, is_confirmed) in
        [(81, false, true), (80, false, false), (79, false, false), (81, true, false)]
    {
        let database = Confirms::default();
        let slot = KnownSlot { peer_held, ..known_slot() };
        confirm_over_sql(&database, &slot, lsn(position), OwnPositions::default(), false);
        let confirmed = std::mem::take(&mut *database.0.lock().unwrap());
        let expected: &[Lsn] = if is_confirmed { &[lsn(position)] } else { &[] };
        assert_eq!(confirmed, expected, "{position} {peer_held}");
    }
}

#[test]
fn topics_are_read_where_another_process_may_have_published_what_comes() {
    for (continuation, is_takeover, reads_topics) in [
        (Continuation::First, false, true),
        (Continuation::Same, false, false),
        (Continuation::Same, true, true),
        (Continuation::AfterPeers, true, true),
        (Continuation::OtherTimeline, true, true),
    ] {
        let start = SessionStart { floor: lsn(80), known: lsn(80), continuation };
        assert_eq!(start.reads_topics(is_takeover), reads_topics, "{continuation:?}");
    }
}

#[test]
fn what_the_slot_has_was_committed_when_it_was_looked_at_and_the_rest_when_a_peer_was_seen() {
    // The slot stands at 80, and a peer was seen to confirm 160.
    for (known, until_us) in [(80, 70), (160, 60), (168, i64::MIN)] {
        let continuation = Continuation::First;
        let start = SessionStart { floor: lsn(80), known: lsn(known), continuation };
        assert_eq!(start.committed_until_us(&after_peers(80, 160)), until_us, "{known}");
    }
}

#[test]
fn a_peer_is_remembered_that_this_process_or_an_earlier_one_has_seen() {
    let now = Moment { instant: Instant::now(), unix_us: 3_600_000_000 };
    for (is_noted, is_seen) in [(false, false), (true, false), (false, true)] {
        let mut state_file = MemoryFile::default().open();
        let session =
            SlotSession { peer_seen: is_noted, unix_us: now.unix_us, ..SlotSession::default() };
        state_file.take_over(("7", 1), "slot", 0, Some(session));
        let sightings = Sightings::default();
        let slot = HeldSlot {
            confirmed_flush: lsn(80),
            holder: None,
            decoded: None,
            run: ServerRun::default(),
            has_peer: is_seen,
            at_unix_us: 0,
        };
        sightings.look(&slot, now.instant);
        let is_remembered = remembers_peer(&state_file.marks, &sightings, now);
        assert_eq!(is_remembered, is_noted || is_seen, "{is_noted} {is_seen}");
    }
}

use super::*;
use crate::relay::testing::walsender;
use crate::source::sightings::Sightings;
use crate::source::walsender::Walsender;

const OWN: i32 = 1;
const PEER: i32 = 2;

/// The end of a record.
fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(8 * number)
}

fn place(timeline: u32) -> SystemTimeline {
    SystemTimeline { system_id: "7".to_owned(), timeline }
}

fn slot(confirmed: u64, holder: Option<SlotHolder>) -> HeldSlot {
    let confirmed_flush = lsn(confirmed);
    HeldSlot { confirmed_flush, holder, decoded: Some(9), run: run("a"), ..HeldSlot::default() }
}

fn relay(pid: i32) -> Option<SlotHolder> {
    Some(SlotHolder { pid, application: "walrelay".to_owned(), peer: true })
}

fn program(name: &str) -> Option<SlotHolder> {
    Some(SlotHolder { pid: 3, application: name.to_owned(), peer: false })
}

/// A server, by when it was started.
fn run(name: &str) -> ServerRun {
    ServerRun::new(name.into(), None)
}

/// A server that was started so, and has crashed since.
fn crashed(name: &str) -> ServerRun {
    ServerRun::new(name.into(), Some(5))
}

/// The slot as this relay held it last.
fn held(at: Instant, peer_at: Option<Instant>) -> Sighting {
    let (run, confirmed) = (run("a"), lsn(100));
    Sighting { at, run, decoded: Some(9), confirmed, peer_at, looked_at: at }
}

/// A relay that reported 100 and lost its session, at a server that it is connected to.
fn history() -> (SlotHistory, Instant) {
    let mut history = SlotHistory::default();
    history.connected(place(1));
    history.opened(OWN);
    history.begin(lsn(100), None);
    (history, Instant::now())
}

fn confirmed(history: &mut SlotHistory) -> Option<u64> {
    history.end(&place(1)).peers.map(|peers| peers.confirmed.to_wire() / 8)
}

#[test]
fn a_gap_before_the_last_move_is_told() {
    let (mut history, now) = history();
    history.look(&slot(150, relay(PEER)), now);
    let later = now + GAP_MAX * 2;
    history.look(&slot(170, None), later);
    let peers = PeerProgress { confirmed: lsn(170), seen_unix_us: 0, gap: Some(GAP_MAX * 2) };
    assert_eq!(history.end(&place(1)).peers, Some(peers));
}

#[test]
fn what_nobody_or_another_program_moved_is_no_peers() {
    let moved = |looks: &[HeldSlot]| {
        let (mut history, now) = history();
        let mut at = now;
        for slot in looks {
            history.look(slot, at);
            at += PEER_ENDS_WITHIN;
        }
        let Seen { peers, mover, .. } = history.end(&place(1));
        (peers.map(|peers| peers.confirmed.to_wire() / 8), mover)
    };
    assert_eq!(moved(&[slot(150, None)]), (None, Mover::Unseen));
    // The own former walsender is no peer.
    assert_eq!(moved(&[slot(100, relay(OWN)), slot(150, None)]), (None, Mover::Unseen));
    let recvlogical = Mover::Program("pg_recvlogical".to_owned());
    let consumed = [slot(100, program("pg_recvlogical")), slot(150, None)];
    assert_eq!(moved(&consumed), (None, recvlogical.clone()));
    // A peer that comes after it does not make it good.
    let consumed = [slot(150, program("pg_recvlogical")), slot(160, relay(PEER)), slot(160, None)];
    assert_eq!(moved(&consumed), (None, recvlogical));
    // A peer was there before it: what the peer confirmed counts, and no more.
    let advanced = [slot(150, relay(PEER)), slot(150, None), slot(200, None)];
    assert_eq!(moved(&advanced), (Some(150), Mover::Unseen));
}

#[test]
fn a_process_id_is_known_as_ones_own_only_as_long_as_it_holds_the_slot() {
    let (mut history, now) = history();
    history.look(&slot(100, relay(OWN)), now);
    history.look(&slot(100, None), now);
    history.look(&slot(150, relay(OWN)), now);
    assert_eq!(confirmed(&mut history), Some(150));
}

#[test]
fn a_slot_that_was_recreated_after_a_peer_held_it_is_no_peers() {
    let (mut history, now) = history();
    history.look(&slot(150, relay(PEER)), now);
    let recreated = HeldSlot { decoded: Some(0), ..slot(200, None) };
    history.look(&recreated, now);
    let Seen { peers, mover, .. } = history.end(&place(1));
    assert_eq!((peers.map(|peers| peers.confirmed), mover), (Some(lsn(150)), Mover::Recreated));
}

#[test]
fn a_relay_that_never_had_the_slot_leaves_its_recreation_to_the_peer_that_goes_on() {
    let fresh = || {
        let mut history = SlotHistory::default();
        history.connected(place(1));
        (history, Instant::now())
    };
    let seen = |(mut history, now): (SlotHistory, Instant), goes_on: bool| {
        history.look(&slot(150, relay(PEER)), now);
        history.look(&HeldSlot { decoded: Some(0), ..slot(200, None) }, now);
        if goes_on {
            history.look(&HeldSlot { decoded: Some(1), ..slot(210, relay(PEER)) }, now);
        }
        let Seen { peers, mover, .. } = history.end(&place(1));
        (peers.map(|peers| peers.confirmed.to_wire() / 8), mover)
    };
    assert_eq!(seen(fresh(), false), (Some(150), Mover::Recreated));
    assert_eq!(seen(fresh(), true), (Some(210), Mover::Unseen));
    assert_eq!(seen(history(), true), (Some(150), Mover::Recreated));
}

#[test]
fn a_crash_of_postgres_forgets_statistics_and_is_no_recreation() {
    let (mut history, now) = history();
    history.look(&slot(150, relay(PEER)), now);
    history.look(&HeldSlot { decoded: Some(0), run: run("b"), ..slot(160, None) }, now);
    assert_eq!(confirmed(&mut history), Some(160));
}

#[test]
fn a_slot_that_a_crash_set_back_leaves_what_was_seen() {
    let (mut history, now) = history();
    history.look(&slot(150, relay(PEER)), now);
    history.connected(place(1));
    history.look(&slot(90, None), now);
    assert_eq!(confirmed(&mut history), Some(150));
}

#[test]
fn a_position_of_another_timeline_counts_for_nothing() {
    let (mut history, now) = history();
    history.look(&slot(150, relay(PEER)), now);
    history.connected(place(2));
    history.look(&slot(90, None), now);
    assert_eq!(history.end(&place(2)).peers, None);
    history.begin(lsn(90), None);
    history.look(&slot(150, relay(PEER)), now);
    assert_eq!(history.end(&place(1)).peers, None, "the session is on another one");
}

#[test]
fn a_peer_is_remembered_on_another_timeline() {
    for has_peer in [true, false] {
        let (mut history, now) = history();
        if has_peer {
            history.look(&slot(100, relay(PEER)), now);
        }
        history.connected(place(2));
        // WHEN it has the slot there while this relay does not look, and a crash takes its trace back
        let second = now + Duration::from_secs(1);
        history.look(&slot(100, None), second);
        history.begin(lsn(100), Some(held(second, None)));
        history.look(&HeldSlot { run: crashed("a"), ..slot(100, None) }, second);
        // THEN it may have had the slot
        assert_eq!(history.end(&place(2)).peer_may_have_held, has_peer);
    }
}

/// A relay that held the slot, with a peer that had a session so long before.
fn blind(peer_before: Option<Duration>) -> (SlotHistory, Instant) {
    let (mut history, start) = history();
    let at = start + Duration::from_secs(100);
    let peer_at = peer_before.map(|before| at - before);
    history.begin(lsn(100), Some(held(at, peer_at)));
    (history, at + Duration::from_secs(30))
}

#[test]
fn where_no_trace_fits_a_peer_that_has_come_and_gone_may_have_held_the_slot() {
    let judged = |position: u64, peer_before: Option<u64>, unseen: u64| {
        let (mut history, start) = history();
        let at = start + Duration::from_secs(100);
        let peer_at = peer_before.map(|before| at - Duration::from_secs(before));
        let confirmed_flush = Lsn::from_wire(position);
        let held = Sighting { confirmed: confirmed_flush, ..held(at, peer_at) };
        history.begin(confirmed_flush, Some(held));
        let look = HeldSlot { confirmed_flush, ..slot(0, None) };
        history.look(&look, at + Duration::from_secs(unseen));
        history.end(&place(1)).peer_may_have_held
    };
    assert!(judged(807, Some(60), 11));
    // It would have left a trace, or this relay would have seen it, or there is none.
    assert!(!judged(806, Some(60), 11));
    assert!(!judged(807, Some(60), 9));
    assert!(!judged(807, None, 11));
}

#[test]
fn what_was_confirmed_unseen_is_a_peers_if_one_was_there_and_something_was_decoded() {
    let decoded = |count| HeldSlot { decoded: Some(count), ..slot(150, None) };
    let judged = |peer_before: Option<u64>, run: ServerRun, look: HeldSlot| {
        let look = HeldSlot { run, ..look };
        let (mut history, now) = blind(peer_before.map(Duration::from_secs));
        history.look(&look, now);
        let Seen { peers, mover, peer_may_have_held, .. } = history.end(&place(1));
        let is_there = look.has_peer || peer_before == Some(1);
        assert_eq!(peer_may_have_held, is_there);
        (peers.and_then(|peers| peers.gap), mover)
    };
    let peers = (Some(Duration::from_secs(30)), Mover::Unseen);
    let moved = (None, Mover::Unseen);
    assert_eq!(judged(Some(1), run("a"), decoded(12)), peers);
    // WHEN no peer was there, or not lately
    assert_eq!(judged(None, run("a"), decoded(12)), moved);
    assert_eq!(judged(Some(60), run("a"), decoded(12)), moved);
    // WHEN nothing was decoded THEN the slot was advanced, unless a peer is there now
    assert_eq!(judged(Some(1), run("a"), decoded(9)), moved);
    assert_eq!(judged(Some(1), run("a"), HeldSlot { has_peer: true, ..decoded(9) }), peers);
    assert_eq!(judged(None, run("a"), HeldSlot { has_peer: true, ..decoded(9) }), peers);
    // WHEN the count begins anew THEN it is another slot, whoever is there, or Postgres has crashed
    let recreated = HeldSlot { has_peer: true, ..decoded(0) };
    assert_eq!(judged(Some(1), run("a"), recreated.clone()), (None, Mover::Recreated));
    assert_eq!(judged(Some(1), run("b"), recreated), peers);
    assert_eq!(judged(Some(1), run("b"), decoded(0)), peers);
    assert_eq!(judged(Some(1), crashed("a"), decoded(0)), peers);
    // WHEN another program holds it THEN that is who moved it
    let read = HeldSlot { has_peer: true, ..slot(150, program("psql")) };
    assert_eq!(judged(Some(1), run("a"), read), (None, Mover::Program("psql".to_owned())));
}

#[test]
fn a_peer_that_this_relay_took_over_from_was_there_although_no_look_of_the_session_shows_it() {
    let held = |at| Sighting { decoded: Some(8), ..held(at, None) };
    for (looked_after, moved) in [
        (None, Some(200)),
        (Some(PEER_SEEN_WITHIN), Some(200)),
        // The peer was not there any more when the slot was seen last.
        (Some(PEER_SEEN_WITHIN * 2), None),
    ] {
        let (mut history, now) = history();
        history.look(&slot(150, relay(PEER)), now);
        history.look(&slot(150, None), now);
        history.opened(OWN);
        history.begin(lsn(150), looked_after.map(|after| held(now + after)));
        // Frozen meanwhile: a relay had the slot, and has gone.
        history.look(&slot(200, None), now + GAP_MAX * 4);
        assert_eq!(confirmed(&mut history), moved, "{looked_after:?}");
    }
}

#[test]
fn a_peer_that_the_watch_has_seen_without_a_session_counts_until_a_later_look_does_not_show_it() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let watched = |looks: &[(u64, HeldSlot)]| {
        let sightings = Sightings::default();
        sightings.opened(Walsender { server: run("a").start, ..walsender(OWN) });
        sightings.look(&slot(100, relay(OWN)), at(0));
        looks.iter().for_each(|(seconds, look)| sightings.look(look, at(*seconds)));
        let (mut history, _) = history();
        history.begin(lsn(100), sightings.last());
        history.look(&HeldSlot { decoded: Some(12), ..slot(150, None) }, at(4000));
        confirmed(&mut history)
    };
    let peer = || HeldSlot { has_peer: true, ..slot(100, None) };
    assert_eq!(watched(&[(300, peer())]), Some(150));
    assert_eq!(watched(&[(300, peer()), (305, slot(100, None))]), Some(150));
    // WHEN it was gone for long at the last look, or another program had the slot since
    assert_eq!(watched(&[(300, peer()), (3000, slot(100, None))]), None);
    assert_eq!(watched(&[(300, peer()), (302, slot(100, program("psql")))]), None);
    assert_eq!(watched(&[]), None);
}

#[test]
fn a_crash_may_hide_a_peer_that_this_process_has_ever_seen() {
    for (before, is_same_run, has_held) in [
        (Some(3600), false, true),
        (Some(3600), true, false),
        (Some(PEER_REMEMBERED.as_secs() + 3600), false, false),
        (None, false, false),
    ] {
        let (mut history, now) = blind(None);
        let (now, before) = (now + PEER_REMEMBERED * 2, before.map(Duration::from_secs));
        let peer_at = before.map(|before| now - before);
        history.begin(lsn(100), Some(held(now, peer_at)));
        let run = if is_same_run { run("a") } else { crashed("a") };
        history.look(&HeldSlot { run, ..slot(100, None) }, now);
        assert_eq!(history.end(&place(1)).peer_may_have_held, has_held, "{before:?} {is_same_run}");
    }
}

#[test]
fn a_standby_relay_is_no_reason_to_believe_that_it_had_the_slot() {
    let peer_at = |confirmed| HeldSlot { has_peer: true, ..slot(confirmed, None) };
    let is_takeover = |run_now: ServerRun, confirmed: u64, blind_for: Duration| {
        let (mut history, at) = history();
        history.begin(lsn(100), Some(held(at, Some(at))));
        history.look(&HeldSlot { run: run_now, ..peer_at(confirmed) }, at + blind_for);
        history.end(&place(1)).peer_may_have_held
    };
    let short = Duration::from_secs(1);
    assert!(!is_takeover(run("a"), 100, short));
    // A trace, or what could have removed it, or a position that left no room for one.
    assert!(is_takeover(run("a"), 101, short));
    assert!(is_takeover(run("b"), 100, short));
    assert!(is_takeover(crashed("a"), 100, short));
    assert!(is_takeover(run("a"), 100, GAP_MAX * 2));
}

/// All relays report the end of the WAL alike while nothing is in flight.
#[test]
fn a_position_without_a_signature_may_be_a_peers_unless_this_relay_was_seen_there() {
    let is_takeover = |has_peer: bool, seen_at: Lsn, confirmed_flush: Lsn| {
        let (mut history, at) = history();
        let held = Sighting { confirmed: seen_at, ..held(at, has_peer.then_some(at)) };
        history.begin(lsn(100), Some(held));
        history.look(&HeldSlot { confirmed_flush, ..slot(0, None) }, at);
        history.end(&place(1)).peer_may_have_held
    };
    assert!(is_takeover(true, lsn(90), lsn(100)));
    assert!(!is_takeover(true, lsn(100), lsn(100)));
    assert!(!is_takeover(false, lsn(90), lsn(100)));
    // Another relay's position has another signature.
    assert!(!is_takeover(true, lsn(90), Lsn::from_wire(8 * 100 - 3)));
}

#[test]
fn a_position_at_which_no_record_ends_is_a_relays_although_nobody_saw_it() {
    let beside = |peer: bool, position: u64, decoded: i64| {
        let (mut history, now) = history();
        let peer_at = peer.then_some(now);
        history.begin(lsn(100), Some(held(now, peer_at)));
        let confirmed_flush = Lsn::from_wire(position);
        let look = HeldSlot { confirmed_flush, decoded: Some(decoded), ..slot(0, None) };
        history.look(&look, now);
        history.end(&place(1)).peers.map(|peers| peers.confirmed.to_wire())
    };
    let at = |position, decoded| beside(false, position, decoded);
    assert_eq!(at(8 * 200 + 3, 10), Some(8 * 200 + 3));
    assert_eq!(at(8 * 200, 10), None);
    // Where nothing was decoded it is a trace, or a peer has confirmed over SQL when it stopped.
    assert_eq!(at(8 * 100 + 3, 9), Some(8 * 100 + 3));
    assert_eq!(beside(true, 8 * 200 + 3, 9), Some(8 * 200 + 3));
    assert_eq!(at(8 * 200 + 3, 9), None);
}

#[test]
fn a_peer_that_begins_again_where_a_crash_has_set_the_slot_may_publish_all_behind_that_again() {
    let (mut history, now) = history();
    history.look(&slot(150, relay(PEER)), now);
    history.look(&HeldSlot { run: crashed("a"), ..slot(120, relay(PEER)) }, now);
    assert_eq!(confirmed(&mut history), Some(120));
}

#[test]
fn a_peer_that_was_gone_for_long_at_the_last_look_of_the_watch_has_moved_nothing() {
    for (looked_after, moved) in [(PEER_SEEN_WITHIN, Some(150)), (PEER_SEEN_WITHIN * 2, None)] {
        let (mut history, now) = history();
        history.begin(lsn(100), Some(held(now, None)));
        // GIVEN that the slot watch has seen a peer, and has looked again
        let looked_at = now + looked_after;
        history.sighted(&Sighting { looked_at, ..held(now, Some(now)) });
        // WHEN the slot was moved while nobody looked
        history.look(&HeldSlot { decoded: Some(12), ..slot(150, None) }, now + GAP_MAX * 4);
        assert_eq!(confirmed(&mut history), moved, "{looked_after:?}");
    }
}

#[test]
fn a_peer_that_comes_may_have_had_the_slot_if_that_has_moved_or_postgres_has_crashed() {
    let trace = Lsn::from_wire(8 * 100 + 3);
    for (confirmed_flush, run, may_have_held) in
        [(lsn(100), run("a"), false), (trace, run("a"), true), (lsn(100), crashed("a"), true)]
    {
        // GIVEN a peer that was not seen before
        let (mut history, now) = history();
        history.begin(lsn(100), Some(held(now, None)));
        history.look(&HeldSlot { confirmed_flush, run, has_peer: true, ..slot(0, None) }, now);
        let seen = history.end(&place(1));
        assert_eq!(seen.peer_may_have_held, may_have_held, "{confirmed_flush}");
    }
}

#[test]
fn the_last_position_of_a_relay_is_told_so_that_ones_own_are_others() {
    let (mut history, now) = history();
    let signed = Lsn::from_wire(8 * 100 + 3);
    history.look(&HeldSlot { confirmed_flush: signed, ..slot(0, relay(PEER)) }, now);
    history.look(&slot(150, relay(PEER)), now);
    // A peer that follows to another timeline keeps its signature.
    history.connected(place(2));
    history.begin(lsn(100), None);
    assert_eq!(history.end(&place(2)).signed, signed);
}

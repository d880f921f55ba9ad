use std::sync::Arc;

use super::super::bench::{Bench, server_run, transaction};
use super::*;
use crate::base::event::Position;
use crate::delivery::prefix::{ConfirmedPrefix, STEP};
use crate::relay::Relay;
use crate::relay::control::{PeerProgress, SessionNews};
use crate::relay::feed::Feed as _;
use crate::relay::state_file::StateFile;
use crate::relay::state_file::header::{REPORTS_MADE, SIGNATURE};
use crate::relay::stops::tests::Site;
use crate::relay::testing::MemoryFile;
use crate::source::progress::Signature;
use crate::testing::lsn;

#[test]
fn the_trace_is_left_again_if_the_slot_may_not_have_it() {
    let file = MemoryFile::default();
    let mut bench = Bench::of(file.open());
    let opened = bench.session(1024);
    bench.open(opened);
    assert_eq!(bench.socket().reports, [1024], "Postgres may know an older position");
    assert_eq!(bench.facts().notes, [""]);
    assert_eq!(file.bytes().load(SIGNATURE), Signature::drawn(0).to_word());
    bench.send(&transaction(2048, &["a"]));
    bench.round();
    assert_eq!(file.bytes().load(REPORTS_MADE), 2);
    // WHEN the session ends before the slot shows it
    bench.lose();
    assert_eq!(bench.relay.feed.replication.untraced, Some(Lsn::ZERO));
    let opened = bench.session(1025);
    bench.open(opened);
    bench.read_behind(1025, 2048, &["a"]);
    assert_eq!(bench.broker().taken, ["a"]);
    // WHEN the slot has shown it, or a crash of Postgres has taken it back since
    bench.lose();
    assert_eq!(bench.relay.feed.replication.untraced, None);
    let opened = bench.session(1024);
    bench.open(opened);
    assert_eq!(bench.relay.feed.replication.untraced, Some(Lsn::ZERO));
}

#[test]
fn the_lowest_position_at_which_the_slot_was_found_is_kept_until_a_crash_sets_the_slot_back() {
    let mut bench = Bench::streaming();
    bench.confirm(0);
    for (slot_confirmed, found) in [(2081, 1024), (1000, 1000)] {
        bench.lose();
        let opened = bench.session(slot_confirmed);
        bench.open(opened);
        let known = bench.relay.feed.slot.as_ref().map(|slot| slot.found);
        assert_eq!(known, Some(lsn(found)));
    }
}

#[test]
fn a_process_notes_which_system_it_has_met_and_where_it_reads() {
    let site = Site::new();
    let stops = Arc::new(site.stops(true, false, false));
    let mut bench = Bench::with(StateFile::default(), &stops);
    bench.stream();
    bench.confirm(0);
    let last = site.stops(true, false, false).last_place();
    assert_eq!(last.map(|(place, _)| place.system_id), Some("7".to_owned()));
    assert!(format!("{stops:?}").contains("reads: true"));
    bench.lose();
    assert!(format!("{stops:?}").contains("reads: false"), "the next session is judged first");
    let mut opened = bench.session(2081);
    opened.place.system_id = "8".to_owned();
    bench.answer(SessionNews::Opened(Box::new(opened)));
    assert_eq!(bench.relay.pass().unwrap_err().code, "slot.other-system");
    assert!(format!("{stops:?}").contains("met_system: Some(\"8\")"));
}

#[test]
fn a_session_follows_a_peer_if_it_is_behind_one_or_the_slot_has_moved_or_one_may_have_had_it() {
    let mut bench = Bench::streaming();
    let cases = [
        (None, 1025, false, false),
        (Some(1025), 1025, false, false),
        (Some(2081), 1025, false, true),
        (None, 2081, false, true),
        (None, 1025, true, true),
    ];
    for in_flight in [true, false] {
        if !in_flight {
            bench.confirm(0);
        }
        for (confirmed, slot_confirmed, may_have_held, follows) in cases {
            let mut opened = bench.session(slot_confirmed);
            let peers = confirmed.map(|confirmed| PeerProgress {
                confirmed: lsn(confirmed),
                seen_unix_us: 0,
                gap: None,
            });
            (opened.seen.peers, opened.seen.peer_may_have_held) = (peers, may_have_held);
            let Relay { feed, down, .. } = &bench.relay;
            let case = (confirmed, slot_confirmed, may_have_held);
            assert_eq!(feed.follows_a_peer(&opened, down), follows && in_flight, "{case:?}");
        }
    }
}

#[test]
fn what_is_in_flight_is_withdrawn_before_a_session_behind_a_peer_and_published_again_in_it() {
    let mut bench = Bench::streaming();
    bench.lose();
    let mut opened = bench.session(1025);
    opened.seen.peer_may_have_held = true;
    bench.open(opened);
    assert_eq!(bench.broker().withdrawals, 1);
    assert!(!bench.is_open());
    bench.round();
    assert!(bench.is_open());
    // THEN it signs in another way, and reads the dead letters of the peer
    assert_ne!(bench.relay.feed.replication.signature(), Signature::drawn(0));
    assert_eq!(bench.letters.last(), 1);
    bench.read_behind(1026, 2048, &["a"]);
    assert_eq!(bench.broker().taken, ["a", "a"]);
}

#[test]
fn a_crash_of_postgres_counts_as_a_takeover_if_a_peer_was_seen() {
    for (run, has_peer) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut bench = Bench::streaming();
        bench.confirm(0);
        bench.relay.feed.slot.as_mut().unwrap().run = server_run(1);
        bench.look(run, has_peer);
        bench.lose();
        let opened = bench.session(2081);
        bench.open(opened);
        assert!(bench.is_open());
        assert_eq!(bench.letters.last(), u64::from(run == 2 && has_peer), "{run} {has_peer}");
    }
}

/// The file of a process that has died with one event confirmed, and has claimed this.
fn left(claim: Option<ConfirmedPrefix>) -> MemoryFile {
    let file = MemoryFile::default();
    let mut bench = Bench::of(file.open());
    bench.stream();
    bench.confirm(0);
    let marks = &bench.relay.down.admitter.state_file.marks;
    claim.into_iter().for_each(|claim| marks.prefix(claim));
    file
}

#[test]
fn events_that_an_earlier_process_has_marked_are_passed_over_unless_a_peer_has_had_the_slot() {
    for peer_held in [false, true] {
        let mut bench = Bench::of(left(None).open());
        let mut opened = bench.session(1025);
        opened.seen.peer_held = peer_held;
        bench.open(opened);
        bench.read_behind(1026, 2048, &["a"]);
        let published: &[&str] = if peer_held { &["a"] } else { &[] };
        assert_eq!(bench.broker().taken, published);
    }
}

#[test]
fn a_claim_that_turns_out_to_be_wrong_is_dropped_and_the_slot_is_read_again() {
    let claim = ConfirmedPrefix { commit_lsn: lsn(2048), events: STEP, digest: 7 };
    let mut bench = Bench::of(left(Some(claim)).open());
    let opened = bench.session(1025);
    bench.open(opened);
    // WHEN the transaction ends before the events that are claimed of it
    bench.read_behind(1026, 2048, &["a", "b"]);
    assert!(bench.broker().taken.is_empty() && !bench.is_open());
    bench.round();
    assert!(bench.requested().unwrap().at_once);
    let opened = bench.session(1025);
    bench.open(opened);
    bench.read_behind(1026, 2048, &["a", "b"]);
    assert_eq!(bench.broker().taken, ["a", "b"]);
}

#[test]
fn nothing_is_claimed_of_a_transaction_whose_begin_another_broker_has() {
    type Case = (fn(&mut Bench), bool);
    let cases: [Case; 3] = [
        (|_| (), true),
        (|it| it.relay.feed.forget_prefix(), false),
        (
            |it| {
                it.broker().is_another = true;
                it.lose();
                let opened = it.session(2081);
                it.open(opened);
            },
            false,
        ),
    ];
    for (change, is_claimed) in cases {
        let mut bench = Bench::streaming();
        bench.confirm(0);
        for ordinal in 0..STEP {
            let position = Position { commit_lsn: lsn(3072), ordinal };
            let prefixes = &mut bench.relay.feed.replication.prefixes;
            prefixes.admitted(position, 7, ordinal + 2).unwrap();
        }
        change(&mut bench);
        let claimed = bench.relay.feed.replication.prefixes.settled(STEP + 1);
        assert_eq!(claimed.is_some(), is_claimed);
    }
}

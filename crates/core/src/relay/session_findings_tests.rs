use super::*;
use crate::base::error::Exit;
use crate::relay::stops::tests::look;
use crate::relay::testing::walsender;
use crate::source::server::ServerRun;
use crate::source::sightings::{PEER_REMEMBERED, PEER_SEEN_WITHIN};

const OWN: i32 = 1;
const PEER: i32 = 2;

fn findings() -> SessionFindings {
    let mut findings = SessionFindings::new(Arc::default(), Arc::default(), Arc::default());
    findings.requested(lsn(100));
    findings.reconnected();
    findings
}

fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(8 * number)
}

fn place() -> SystemTimeline {
    SystemTimeline { system_id: "7".to_owned(), timeline: 1 }
}

/// The slot at a position, in the hands of a relay if a process id is given.
fn slot(confirmed: u64, pid: Option<i32>) -> HeldSlot {
    let holder = |pid| SlotHolder { pid, application: "walrelay".to_owned(), peer: true };
    let run = ServerRun::new("a".into(), None);
    HeldSlot {
        confirmed_flush: lsn(confirmed),
        holder: pid.map(holder),
        decoded: Some(confirmed as i64),
        run,
        ..HeldSlot::default()
    }
}

fn opened(findings: &mut SessionFindings, confirmed: u64) -> (Seen, Option<PublicationInDoubt>) {
    let holder = Walsender { server: "a".into(), ..walsender(OWN) };
    findings.opened(holder, &slot(confirmed, Some(OWN)), Instant::now());
    findings.take(&place())
}

fn doubt() -> Fault {
    Fault::new(Exit::Source, "publication.recreated", "it is young", "", "")
}

/// A preflight that finds no fault, of a publication that may have let rows pass.
fn doubts(findings: &mut SessionFindings, confirmed: u64) -> Option<i64> {
    let mut delivered = None;
    let doubt = |decoded| {
        delivered = decoded;
        Some(doubt())
    };
    findings.compare(look(1), true, lsn(confirmed), doubt).unwrap();
    findings.checked(place());
    delivered
}

#[test]
fn a_look_counts_once_the_preflight_says_where_it_was_made() {
    // GIVEN a peer that is seen before the preflight, and whose progress is seen behind it
    let mut findings = findings();
    findings.look(&slot(100, Some(PEER)), Instant::now());
    findings.checked(place());
    findings.look(&slot(150, None), Instant::now());
    // THEN the peer has moved the slot
    let (seen, _) = opened(&mut findings, 150);
    assert!(seen.peer_held);
    assert_eq!(seen.peers.map(|peers| peers.confirmed), Some(lsn(150)));
}

#[test]
fn a_look_on_a_connection_that_is_lost_before_the_preflight_does_not_count() {
    let mut findings = findings();
    findings.look(&slot(100, Some(PEER)), Instant::now());
    findings.reconnected();
    findings.checked(place());
    assert!(!opened(&mut findings, 100).0.peer_held);
}

#[test]
fn a_doubt_stands_until_the_slot_moves_and_goes_with_one_session() {
    for (moves_to, stands) in [(100, true), (101, false)] {
        let mut findings = findings();
        findings.look(&slot(100, Some(PEER)), Instant::now());
        doubts(&mut findings, 100);
        // WHEN the connection is lost, and the publication is not new any more
        findings.reconnected();
        findings.look(&slot(moves_to, None), Instant::now());
        let nothing_new = |_| panic!("it is known");
        findings.compare(look(1), true, lsn(moves_to), nothing_new).unwrap();
        findings.checked(place());
        let (_, found) = opened(&mut findings, moves_to);
        assert_eq!(found.map(|found| found.fault), stands.then(doubt));
        assert_eq!(findings.take(&place()).1, None);
    }
}

#[test]
fn a_publication_is_compared_with_the_slot_as_it_was_before_this_process_read_it() {
    let mut findings = findings();
    findings.look(&slot(100, None), Instant::now());
    findings.look(&slot(150, None), Instant::now());
    assert_eq!(doubts(&mut findings, 150), Some(100));
}

#[test]
fn a_former_walsender_of_this_relay_is_no_other_process() {
    let mut findings = findings();
    findings.checked(place());
    opened(&mut findings, 100);
    let is_other =
        |findings: &SessionFindings, pid| findings.other_holder(&slot(100, Some(pid))).is_some();
    assert_eq!([OWN, PEER].map(|pid| is_other(&findings, pid)), [false, true]);
    // WHEN it has ended THEN its process id may be that of another one
    findings.requested(lsn(100));
    findings.look(&slot(100, None), Instant::now());
    assert!(is_other(&findings, OWN));
}

#[test]
fn a_peer_that_only_the_slot_watch_has_seen_may_have_moved_the_slot() {
    let sightings = Arc::new(Sightings::default());
    let mut findings = SessionFindings::new(Arc::default(), Arc::default(), Arc::clone(&sightings));
    let begin = |findings: &mut SessionFindings| {
        findings.requested(lsn(100));
        findings.reconnected();
        findings.checked(place());
    };
    begin(&mut findings);
    opened(&mut findings, 100);
    // GIVEN a session that is requested, and a peer that the slot watch sees before the next look
    begin(&mut findings);
    sightings.look(&HeldSlot { has_peer: true, ..slot(100, None) }, Instant::now());
    // WHEN nobody is there, and the slot has moved THEN that peer may have moved it
    findings.look(&slot(150, None), Instant::now());
    let (seen, _) = opened(&mut findings, 150);
    assert_eq!(seen.peers.map(|peers| peers.confirmed), Some(lsn(150)));
}

#[test]
fn a_new_connection_is_checked_once_more() {
    let mut findings = findings();
    assert!(!findings.is_checked());
    findings.checked(place());
    assert!(findings.is_checked());
    findings.reconnected();
    assert!(!findings.is_checked());
}

#[test]
fn a_peer_that_a_process_has_seen_before_it_had_the_slot_is_there() {
    let sightings = Sightings::default();
    sightings.look(&slot(100, None), Instant::now());
    assert!(!sightings.has_peer());
    sightings.look(&HeldSlot { has_peer: true, ..slot(100, None) }, Instant::now());
    assert!(sightings.has_peer());
    // WHEN it has the slot, also on another server THEN the peer is there for some seconds, and remembered
    sightings.opened(Walsender { server: "b".into(), ..walsender(OWN) });
    sightings.look(&slot(100, Some(OWN)), Instant::now());
    assert!(sightings.has_peer());
    let later = Instant::now() + 2 * PEER_SEEN_WITHIN;
    sightings.look(&slot(100, Some(OWN)), later);
    assert!(!sightings.has_peer() && sightings.remembers_peer(later));
    assert!(!sightings.remembers_peer(later + PEER_REMEMBERED));
}

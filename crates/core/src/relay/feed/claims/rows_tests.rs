//! Claimed rows, as workers and sink see them.

use super::*;
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::DeadLetterCause;
use crate::testing::cause;

fn now() -> Moment {
    Moment { instant: Instant::now(), unix_us: 5 }
}

fn batch(claim: &str, ids: &[&str]) -> Batch {
    let row = |id: &&str| {
        let (id, tuple) = ((*id).to_owned(), vec![0; 4]);
        PolledRow { id, created_unix_us: 7, tuple, ..PolledRow::default() }
    };
    let rows = ids.iter().map(row).collect();
    Batch { claim: claim.to_owned(), claimed_at: now().instant, lsn: Lsn::from_wire(9), rows }
}

/// The verdicts of a claim that has no further row.
fn last(claim: &str) -> Verdicts {
    Verdicts { last: true, ..Verdicts::of(claim.to_owned()) }
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// The sink has taken a row of ten bytes.
fn sent() -> Flight {
    let row = PolledRow { created_unix_us: 7, ..PolledRow::default() };
    Flight { bytes: 10, ..flight_of(&row, Position::default(), 0) }
}

/// The row becomes a dead letter after so many attempts.
fn give_up(rows: &mut ClaimedRows, sequence: Sequence, attempts: u32, reason: &str) {
    let cause = DeadLetterCause { reason: reason.to_owned(), attempts, ..cause("kafka.no") };
    let state = FlightState::DeadLetter(Box::new(cause));
    rows.update(sequence, |flight| flight.state = state).unwrap();
}

/// The dead-letter topic has the row.
fn dead_letter(rows: &mut ClaimedRows, sequence: Sequence, attempts: u32, reason: &str) {
    give_up(rows, sequence, attempts, reason);
    rows.settle(sequence).unwrap();
}

#[test]
fn a_row_on_which_processes_died_is_known_once_its_dead_letter_is_there() {
    let mut rows = ClaimedRows::default();
    rows.take(batch("a", &["1", "2"]), now());
    offer_all(&mut rows, now());
    dead_letter(&mut rows, 0, 3, "no");
    assert!(!rows.has_given_up_deadly);
    give_up(&mut rows, 1, 3, "the process has died on it");
    let of_crash = |flight: &mut Flight| {
        if let FlightState::DeadLetter(cause) = &mut flight.state {
            cause.class = CLASS_CRASH.to_owned();
        }
    };
    rows.update(1, of_crash).unwrap();
    assert!(!rows.has_given_up_deadly);
    rows.settle(1).unwrap();
    assert!(rows.has_given_up_deadly);
}

fn offer_all(rows: &mut ClaimedRows, now: Moment) -> Vec<Sequence> {
    let mut offered = Vec::new();
    while let Some((sequence, ..)) = rows.next_queued() {
        offered.push(sequence);
        rows.offered(sent(), now.instant);
    }
    offered
}

#[test]
fn a_batch_has_one_verdict_when_all_of_it_is_settled() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2"]), now);
    let position = Position { commit_lsn: Lsn::from_wire(9), ordinal: 1 };
    assert_eq!(rows.rows[&1].flight.position, position);
    assert_eq!(offer_all(&mut rows, now), [0, 1]);
    assert_eq!((rows.in_flight, rows.bytes, rows.held_bytes), (2, 20, 8));
    assert_eq!(rows.settle(1).unwrap().commit_unix_us, 7);
    assert_eq!(rows.take_verdicts(now.instant), [], "the other row is not settled");
    assert_eq!(rows.settle(0).unwrap().commit_unix_us, 7);
    let published = ids(&["2", "1"]);
    assert_eq!(rows.take_verdicts(now.instant), [Verdicts { published, ..last("a") }]);
    assert_eq!((rows.in_flight, rows.bytes, rows.held_bytes, rows.unsettled()), (0, 0, 0, 0));
    // THEN a receipt for what is gone is a defect, never ignored
    assert_eq!(rows.settle(0).map(drop), Err(NotInFlight(0)));
}

#[test]
fn a_failed_row_holds_up_no_other_row_of_its_batch() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2"]), now);
    offer_all(&mut rows, now);
    let wait = Duration::from_secs(3);
    rows.retrying(0, 1, wait, "no".into());
    assert_eq!(rows.failing, 1);
    rows.settle(1).unwrap();
    let noted = vec![FailedRow { id: "1".into(), attempts: 1, reason: "no".into(), wait }];
    let published = ids(&["2"]);
    let first = Verdicts { noted, published, last: false, ..last("a") };
    assert_eq!(rows.take_verdicts(now.instant), [first]);
    // WHEN it is settled later THEN its verdict is the last of its claim
    dead_letter(&mut rows, 0, 5, "never");
    let (reason, wait) = ("never (kafka.no)".to_owned(), Duration::ZERO);
    let failed = vec![FailedRow { id: "1".into(), attempts: 5, reason, wait }];
    assert_eq!(rows.take_verdicts(now.instant), [Verdicts { failed, ..last("a") }]);
    assert_eq!((rows.in_flight, rows.failing), (0, 0));
    assert_eq!(rows.take_verdicts(now.instant), []);
}

#[test]
fn a_worker_waits_two_seconds_for_all_rows_of_its_batch() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2", "3"]), now);
    offer_all(&mut rows, now);
    rows.settle(0).unwrap();
    let millisecond = Duration::from_millis(1);
    assert_eq!(rows.take_verdicts(now.instant + WORKER_WAITS - millisecond), []);
    let some = |published| Verdicts { published, last: false, ..last("a") };
    let waited = now.instant + WORKER_WAITS;
    assert_eq!(rows.take_verdicts(waited), [some(ids(&["1"]))]);
    // THEN what follows comes as it is known
    assert_eq!(rows.take_verdicts(waited), []);
    rows.settle(2).unwrap();
    assert_eq!(rows.take_verdicts(waited), [some(ids(&["3"]))]);
    rows.settle(1).unwrap();
    let published = ids(&["2"]);
    assert_eq!(rows.take_verdicts(waited), [Verdicts { published, ..last("a") }]);
}

#[test]
fn rows_that_wait_for_long_while_later_ones_are_settled_are_overtaken() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2", "3"]), now);
    rows.take(batch("b", &["4", "5"]), now);
    // GIVEN rows of which the sink has had one for long
    rows.offered(sent(), now.instant);
    let later = Moment { instant: now.instant + OVERTAKEN_AFTER, ..now };
    offer_all(&mut rows, later);
    assert!(rows.overtaken(later.instant).0.is_empty(), "the broker may be away as a whole");
    // WHEN a later one is settled THEN that one is overtaken
    rows.settle(4).unwrap();
    assert_eq!(rows.overtaken(later.instant), (vec![0], OVERTAKEN_AFTER));
    // WHEN the sink has had the others for long, too THEN they are, but not one that has failed
    let last = Moment { instant: later.instant + OVERTAKEN_AFTER, ..now };
    rows.retrying(1, 1, Duration::ZERO, "no".into());
    assert_eq!(rows.overtaken(last.instant).0, [0, 2, 3]);
    // WHEN there is a new sink THEN it has had them for no time
    rows.rewind();
    offer_all(&mut rows, last);
    rows.settle(3).unwrap();
    assert!(rows.overtaken(last.instant).0.is_empty());
    assert_eq!(rows.overtaken(last.instant + OVERTAKEN_AFTER).0, [0, 1, 2]);
}

#[test]
fn a_new_sink_gets_what_is_not_settled_in_the_same_order_under_the_same_numbers() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2", "3"]), now);
    offer_all(&mut rows, now);
    rows.take(batch("b", &["4"]), now);
    rows.settle(1).unwrap();
    rows.retrying(2, 1, Duration::ZERO, "no".into());
    rows.rewind();
    assert_eq!((rows.in_flight, rows.bytes, rows.failing), (0, 0, 0));
    assert_eq!(rows.settle(0).map(drop), Err(NotInFlight(0)), "the new sink does not have it");
    assert_eq!(rows.update(0, |_| ()), Err(NotInFlight(0)));
    assert_eq!(offer_all(&mut rows, now), [0, 2, 3]);
    assert!(!rows.has_queued());
    assert_eq!(rows.rows[&3].row.id, "4");
}

#[test]
fn at_the_end_what_has_no_verdict_is_given_back() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2", "3"]), now);
    rows.offered(sent(), now.instant);
    rows.settle(0).unwrap();
    rows.offered(sent(), now.instant);
    assert_eq!(rows.give_back(), [], "no row was a dead letter");
    assert_eq!((rows.in_flight, rows.bytes, rows.held_bytes), (0, 0, 0));
    let (published, given_back) = (ids(&["1"]), ids(&["2", "3"]));
    assert_eq!(rows.take_verdicts(now.instant), [Verdicts { published, given_back, ..last("a") }]);
    assert!(rows.next_queued().is_none());
    // WHEN rows come in afterwards THEN they are queued
    rows.take(batch("b", &["4"]), now);
    assert_eq!(offer_all(&mut rows, now), [3]);
}

#[test]
fn attempts_of_earlier_processes_count() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    let mut first = batch("a", &["1", "2"]);
    first.rows[1].attempts = 3;
    rows.take(first, now);
    offer_all(&mut rows, now);
    let attempts = Attempts { count: 3, ..Attempts::none(now.unix_us) };
    let of = |rows: &mut ClaimedRows, row| rows.update(row, |it| it.attempts());
    assert_eq!((of(&mut rows, 0), of(&mut rows, 1)), (Ok(None), Ok(Some(attempts))));
    assert_eq!(rows.failing, 0, "no attempt of this process has failed");
}

#[test]
fn a_batch_that_is_refused_is_given_back_and_never_queued() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1"]), now);
    rows.refuse(batch("b", &["2", "3"]), now.instant);
    // THEN the sink gets none of it, and all of it is free again
    assert_eq!(offer_all(&mut rows, now), [0]);
    let given_back = ids(&["2", "3"]);
    assert_eq!(rows.take_verdicts(now.instant), [Verdicts { given_back, ..last("b") }]);
    assert_eq!((rows.unsettled(), rows.next), (1, 3));
}

#[test]
fn a_dead_letter_that_is_given_back_is_named() {
    let (mut rows, now) = (ClaimedRows::default(), now());
    rows.take(batch("a", &["1", "2"]), now);
    offer_all(&mut rows, now);
    give_up(&mut rows, 1, 3, "no");
    let position = rows.update(1, |it| it.position).unwrap();
    assert_eq!(rows.give_back(), [position]);
}

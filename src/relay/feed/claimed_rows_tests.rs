//! Claimed rows, as workers and sink see them.

use super::*;
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::DeadLetterCause;

fn batch(claim: &str, ids: &[&str]) -> (Batch, oneshot::Receiver<Verdicts>) {
    let (answer, verdicts) = oneshot::channel();
    let row =
        |id: &&str| PolledRow { id: (*id).to_owned(), created_unix_us: 7, ..PolledRow::default() };
    let rows = ids.iter().map(row).collect();
    let (claim, claimed_at) = (claim.to_owned(), std::time::Instant::now());
    (Batch { claim, claimed_at, lsn: Lsn::from_wire(9), rows, answer }, verdicts)
}

/// The sink has taken a row of ten bytes.
fn sent() -> Flight {
    let row = PolledRow { created_unix_us: 7, ..PolledRow::default() };
    Flight { bytes: 10, ..flight_of(&row, Position::default(), 0) }
}

/// The dead-letter topic has the row, after so many attempts.
fn dead_letter(rows: &mut ClaimedRows, sequence: Sequence, attempts: u32, reason: &str) {
    let cause = DeadLetterCause {
        class: "kafka.no".to_owned(),
        reason: reason.to_owned(),
        attempts,
        first_failed_unix_us: 0,
        failed_unix_us: 0,
        position: Position::default(),
        incomplete: false,
        parks_key: false,
    };
    let state = FlightState::DeadLetter(Box::new(cause));
    rows.update(sequence, |flight| flight.state = state).unwrap();
    rows.settle(sequence).unwrap();
}

fn offer_all(rows: &mut ClaimedRows) -> Vec<Sequence> {
    let mut offered = Vec::new();
    while let Some((sequence, ..)) = rows.next_queued() {
        offered.push(sequence);
        rows.offered(sent());
    }
    offered
}

/// Passes the answers on, as the loop does.
fn tell(rows: &mut ClaimedRows) -> Vec<(String, Verdicts)> {
    let sent = rows.take_verdicts().into_iter();
    let late = sent.filter_map(|(Late { claim, verdicts }, answer)| match answer {
        Some(answer) => answer.send(verdicts).err().map(|verdicts| (claim, verdicts)),
        None => Some((claim, verdicts)),
    });
    late.collect()
}

#[test]
fn a_batch_is_told_once_when_all_of_it_is_settled() {
    let mut rows = ClaimedRows::default();
    let (batch, mut verdicts) = batch("a", &["1", "2"]);
    rows.take(batch, 0);
    let position = Position { commit_lsn: Lsn::from_wire(9), ordinal: 1 };
    assert_eq!(rows.batch_of(1).unwrap().rows[&1].flight.position, position);
    assert_eq!(offer_all(&mut rows), [0, 1]);
    assert_eq!((rows.in_flight, rows.bytes), (2, 20));
    assert_eq!(rows.settle(1).unwrap().commit_unix_us, 7);
    assert_eq!(tell(&mut rows), []);
    assert!(verdicts.try_recv().is_err(), "told before the other row is settled");
    assert_eq!(rows.settle(0).unwrap().commit_unix_us, 7);
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.published, told.last), (vec!["2".to_owned(), "1".to_owned()], true));
    assert_eq!((rows.in_flight, rows.bytes), (0, 0));
    // THEN a receipt for what is gone is a defect, never ignored
    assert_eq!(rows.settle(0).map(drop), Err(NotInFlight(0)));
}

#[test]
fn what_has_failed_holds_up_no_other_row_of_its_batch() {
    let mut rows = ClaimedRows::default();
    let (first, mut verdicts) = batch("a", &["1", "2"]);
    rows.take(first, 0);
    offer_all(&mut rows);
    rows.retrying(0, 1, Duration::from_secs(3), "no".into());
    assert_eq!(rows.failing, 1);
    rows.settle(1).unwrap();
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.published, told.noted[0].attempts, told.last), (vec!["2".into()], 1, false));
    // WHEN it is settled later THEN that is told late, and is the last of its claim
    dead_letter(&mut rows, 0, 5, "never");
    let late = tell(&mut rows);
    assert_eq!(late.len(), 1);
    assert_eq!((late[0].0.as_str(), late[0].1.failed[0].attempts, late[0].1.last), ("a", 5, true));
    assert_eq!((rows.in_flight, rows.failing), (0, 0));
    assert!(tell(&mut rows).is_empty());
}

#[test]
fn rows_that_wait_for_long_while_later_ones_are_settled_are_known() {
    let mut rows = ClaimedRows::default();
    let (first, _keep) = batch("a", &["1", "2", "3"]);
    let (second, _keep_too) = batch("b", &["4", "5"]);
    rows.take(first, 0);
    rows.take(second, 0);
    offer_all(&mut rows);
    // GIVEN rows that were claimed long ago, of which the sink has had one for long
    let long_ago = Instant::now().checked_sub(OVERTAKEN_AFTER).unwrap();
    let first = rows.batch_of(0).unwrap();
    first.taken_at = long_ago;
    first.rows.get_mut(&0).unwrap().state = RowState::Offered(long_ago);
    assert!(rows.overtaken().is_empty(), "the broker may be away as a whole");
    // WHEN a later one is settled THEN that one is overtaken
    rows.settle(4).unwrap();
    assert_eq!(rows.overtaken(), [0]);
    // WHEN the sink has had the others for long, too THEN they are, but not one that has failed
    for claimed in rows.batch_of(0).unwrap().rows.values_mut() {
        claimed.state = RowState::Offered(long_ago);
    }
    rows.retrying(1, 1, Duration::ZERO, "no".into());
    assert_eq!(rows.overtaken(), [0, 2]);
    // WHEN there is a new sink THEN it has had them for no time
    rows.rewind();
    offer_all(&mut rows);
    assert!(rows.overtaken().is_empty());
}

#[test]
fn a_new_sink_gets_what_is_not_settled_in_the_same_order_under_the_same_numbers() {
    let mut rows = ClaimedRows::default();
    let (first, _keep) = batch("a", &["1", "2", "3"]);
    let (second, _keep_too) = batch("b", &["4"]);
    rows.take(first, 0);
    offer_all(&mut rows);
    rows.take(second, 0);
    rows.settle(1).unwrap();
    rows.retrying(2, 1, Duration::ZERO, "no".into());
    rows.rewind();
    assert_eq!((rows.in_flight, rows.bytes, rows.failing), (0, 0, 0));
    assert_eq!(rows.settle(0).map(drop), Err(NotInFlight(0)), "the old sink has nothing to say");
    assert_eq!(offer_all(&mut rows), [0, 2, 3]);
    assert_eq!(rows.batch_of(3).unwrap().rows[&3].row.id, "4");
}

#[test]
fn at_the_end_what_has_no_verdict_is_given_back() {
    let mut rows = ClaimedRows::default();
    let (first, mut verdicts) = batch("a", &["1", "2", "3"]);
    rows.take(first, 0);
    rows.offered(sent());
    rows.settle(0).unwrap();
    rows.offered(sent());
    rows.give_back();
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!(told.published, ["1"]);
    assert_eq!((told.given_back, told.last), (vec!["2".to_owned(), "3".to_owned()], true));
    assert!(rows.next_queued().is_none());
}

#[test]
fn attempts_of_earlier_processes_count() {
    let mut rows = ClaimedRows::default();
    let (mut first, _keep) = batch("a", &["1", "2"]);
    first.rows[1].attempts = 3;
    rows.take(first, 5);
    offer_all(&mut rows);
    let attempts = Attempts { count: 3, ..Attempts::none(5) };
    let of = |rows: &mut ClaimedRows, row| rows.update(row, |it| it.attempts);
    assert_eq!((of(&mut rows, 0), of(&mut rows, 1)), (Ok(None), Ok(Some(attempts))));
}

#[test]
fn a_batch_that_is_too_old_is_released_unread() {
    let mut rows = ClaimedRows::default();
    let (first, _kept) = batch("a", &["1"]);
    rows.take(first, 0);
    let (old, mut verdicts) = batch("b", &["2", "3"]);
    rows.refuse(old);
    // THEN the sink gets none of it, and all of it is free again
    assert_eq!(offer_all(&mut rows), [0]);
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.given_back, told.last), (vec!["2".to_owned(), "3".to_owned()], true));
    assert_eq!((rows.unsettled, rows.next), (1, 3));
}

//! Claimed rows, as workers and sink see them.

use super::*;

fn batch(claim: &str, ids: &[&str]) -> (Batch, oneshot::Receiver<Verdicts>) {
    let (answer, verdicts) = oneshot::channel();
    let row =
        |id: &&str| PolledRow { id: (*id).to_owned(), created_unix_us: 7, ..PolledRow::default() };
    let rows = ids.iter().map(row).collect();
    let (claim, claimed_at) = (claim.to_owned(), std::time::Instant::now());
    (Batch { claim, claimed_at, lsn: Lsn::from_wire(9), rows, answer }, verdicts)
}

fn offer_all(rows: &mut ClaimedRows) -> Vec<Sequence> {
    let mut offered = Vec::new();
    while let Some((sequence, _)) = rows.next_queued() {
        offered.push(sequence);
        rows.offered(10);
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
    assert_eq!(rows.take(batch), []);
    assert_eq!(offer_all(&mut rows), [0, 1]);
    assert_eq!((rows.in_flight, rows.bytes), (2, 20));
    assert_eq!(rows.position(1), Position { commit_lsn: Lsn::from_wire(9), ordinal: 1 });
    assert_eq!(rows.published(1), Ok(7));
    assert_eq!(tell(&mut rows), []);
    assert!(verdicts.try_recv().is_err(), "told before the other row is settled");
    assert_eq!(rows.published(0), Ok(7));
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.published, told.last), (vec!["2".to_owned(), "1".to_owned()], true));
    assert_eq!((rows.in_flight, rows.bytes), (0, 0));
    // THEN a receipt for what is gone is a defect, never ignored
    assert_eq!(rows.published(0), Err(NotInFlight(0)));
}

#[test]
fn what_has_failed_holds_up_no_other_row_of_its_batch() {
    let mut rows = ClaimedRows::default();
    let (first, mut verdicts) = batch("a", &["1", "2"]);
    rows.take(first);
    offer_all(&mut rows);
    rows.retrying(0, 1, Duration::from_secs(3), "no".into());
    assert_eq!(rows.failing, 1);
    rows.published(1).unwrap();
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.published, told.noted[0].attempts, told.last), (vec!["2".into()], 1, false));
    // WHEN it is settled later THEN that is told late, and is the last of its claim
    rows.failed(0, 5, "never".into()).unwrap();
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
    rows.take(first);
    rows.take(second);
    offer_all(&mut rows);
    // GIVEN rows that were claimed long ago, of which the sink has had one for long
    let long_ago = Instant::now().checked_sub(OVERTAKEN_AFTER).unwrap();
    let first = rows.batch_of(0).unwrap();
    first.taken_at = long_ago;
    first.rows.get_mut(&0).unwrap().state = RowState::Offered(long_ago);
    assert!(rows.overtaken().is_empty(), "the broker may be away as a whole");
    // WHEN a later one is settled THEN that one is overtaken
    rows.published(4).unwrap();
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
    rows.take(first);
    offer_all(&mut rows);
    rows.take(second);
    rows.published(1).unwrap();
    rows.retrying(2, 1, Duration::ZERO, "no".into());
    rows.rewind();
    assert_eq!((rows.in_flight, rows.bytes, rows.failing), (0, 0, 0));
    assert_eq!(rows.published(0), Err(NotInFlight(0)), "the old sink has nothing to say");
    assert_eq!(offer_all(&mut rows), [0, 2, 3]);
    assert_eq!(rows.batch_of(3).unwrap().rows[&3].row.id, "4");
}

#[test]
fn at_the_end_what_has_no_verdict_is_given_back() {
    let mut rows = ClaimedRows::default();
    let (first, mut verdicts) = batch("a", &["1", "2", "3"]);
    rows.take(first);
    rows.offered(10);
    rows.published(0).unwrap();
    rows.offered(10);
    rows.give_back();
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!(told.published, ["1"]);
    assert_eq!((told.given_back, told.last), (vec!["2".to_owned(), "3".to_owned()], true));
    assert_eq!(rows.next_queued(), None);
}

#[test]
fn attempts_of_earlier_processes_are_told() {
    let mut rows = ClaimedRows::default();
    let (mut first, _keep) = batch("a", &["1", "2"]);
    first.rows[1].attempts = 3;
    assert_eq!(rows.take(first), [(1, 3)]);
}

#[test]
fn a_batch_that_is_too_old_is_released_unread() {
    let mut rows = ClaimedRows::default();
    let (first, _kept) = batch("a", &["1"]);
    assert_eq!(rows.take(first), []);
    let (old, mut verdicts) = batch("b", &["2", "3"]);
    rows.refuse(old);
    // THEN the sink gets none of it, and all of it is free again
    assert_eq!(offer_all(&mut rows), [0]);
    assert_eq!(tell(&mut rows), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.given_back, told.last), (vec!["2".to_owned(), "3".to_owned()], true));
    assert_eq!((rows.unsettled, rows.next), (1, 3));
}

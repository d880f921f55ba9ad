//! The rows in hand, as workers and sink see them.

use super::*;

fn batch(claim: &str, ids: &[&str]) -> (Batch, oneshot::Receiver<Verdicts>) {
    let (answer, verdicts) = oneshot::channel();
    let row = |id: &&str| Row { id: (*id).to_owned(), created_unix_us: 7, ..Row::default() };
    let rows = ids.iter().map(row).collect();
    (Batch { claim: claim.to_owned(), lsn: Lsn::from_wire(9), rows, answer }, verdicts)
}

fn offer_all(hand: &mut Hand) -> Vec<Sequence> {
    let mut offered = Vec::new();
    while let Some(sequence) = hand.upcoming() {
        offered.push(sequence);
        hand.offered(10);
    }
    offered
}

/// Passes the answers on, as the loop does.
fn tell(hand: &mut Hand) -> Vec<(String, Verdicts)> {
    let told = hand.tell().into_iter();
    let late = told.filter_map(|Told { claim, verdicts, answer }| match answer {
        Some(answer) => answer.send(verdicts).err().map(|verdicts| (claim, verdicts)),
        None => Some((claim, verdicts)),
    });
    late.collect()
}

#[test]
fn a_batch_is_told_once_when_all_of_it_is_settled() {
    let mut hand = Hand::default();
    let (batch, mut verdicts) = batch("a", &["1", "2"]);
    assert_eq!(hand.take(batch), []);
    assert_eq!(offer_all(&mut hand), [0, 1]);
    assert_eq!((hand.in_flight(), hand.bytes()), (2, 20));
    assert_eq!(hand.position(1), Position { commit_lsn: Lsn::from_wire(9), ordinal: 1 });
    assert_eq!(hand.published(1), Ok(7));
    assert_eq!(tell(&mut hand), []);
    assert!(verdicts.try_recv().is_err(), "told before the other row is settled");
    assert_eq!(hand.published(0), Ok(7));
    assert_eq!(tell(&mut hand), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.published, told.last), (vec!["2".to_owned(), "1".to_owned()], true));
    assert_eq!((hand.in_flight(), hand.bytes()), (0, 0));
    // THEN a receipt for what is gone is a defect, never ignored
    assert_eq!(hand.published(0), Err(NotInFlight(0)));
}

#[test]
fn what_has_failed_holds_up_no_other_row_of_its_batch() {
    let mut hand = Hand::default();
    let (first, mut verdicts) = batch("a", &["1", "2"]);
    hand.take(first);
    offer_all(&mut hand);
    hand.noted(0, 1, Duration::from_secs(3), "no".into());
    assert_eq!(hand.failing(), 1);
    hand.published(1).unwrap();
    assert_eq!(tell(&mut hand), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!((told.published, told.noted[0].attempts, told.last), (vec!["2".into()], 1, false));
    // WHEN it is settled later THEN that is told late, and is the last of its claim
    hand.failed(0, 5, "never".into()).unwrap();
    let late = tell(&mut hand);
    assert_eq!(late.len(), 1);
    assert_eq!((late[0].0.as_str(), late[0].1.failed[0].attempts, late[0].1.last), ("a", 5, true));
    assert_eq!((hand.in_flight(), hand.failing()), (0, 0));
    assert!(tell(&mut hand).is_empty());
}

#[test]
fn a_new_sink_gets_what_is_not_settled_in_the_same_order_under_the_same_numbers() {
    let mut hand = Hand::default();
    let (first, _keep) = batch("a", &["1", "2", "3"]);
    let (second, _keep_too) = batch("b", &["4"]);
    hand.take(first);
    offer_all(&mut hand);
    hand.take(second);
    hand.published(1).unwrap();
    hand.noted(2, 1, Duration::ZERO, "no".into());
    hand.rewind();
    assert_eq!((hand.in_flight(), hand.bytes(), hand.failing()), (0, 0, 0));
    assert_eq!(hand.published(0), Err(NotInFlight(0)), "the old sink has nothing to say");
    assert_eq!(offer_all(&mut hand), [0, 2, 3]);
    assert_eq!(hand.row(3).unwrap().id, "4");
}

#[test]
fn at_the_end_what_has_no_verdict_is_given_back() {
    let mut hand = Hand::default();
    let (first, mut verdicts) = batch("a", &["1", "2", "3"]);
    hand.take(first);
    hand.offered(10);
    hand.published(0).unwrap();
    hand.offered(10);
    hand.give_back();
    assert_eq!(tell(&mut hand), []);
    let told = verdicts.try_recv().unwrap();
    assert_eq!(told.published, ["1"]);
    assert_eq!((told.given_back, told.last), (vec!["2".to_owned(), "3".to_owned()], true));
    assert_eq!(hand.upcoming(), None);
}

#[test]
fn attempts_of_earlier_processes_are_told() {
    let mut hand = Hand::default();
    let (mut first, _keep) = batch("a", &["1", "2"]);
    first.rows[1].attempts = 3;
    assert_eq!(hand.take(first), [FailedBefore { sequence: 1, attempts: 3 }]);
}

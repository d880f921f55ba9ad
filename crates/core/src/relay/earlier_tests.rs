use super::*;
use crate::base::event::Position;
use crate::delivery::known::{Fingerprint, Mark};
use crate::relay::read_back::tests::{answer, started, with};
use crate::testing::lsn;

/// The mark of an event of the transaction at 150.
fn marked(topics: ReadBack) -> EarlierEvents {
    let position = Position { commit_lsn: lsn(150), ordinal: 0 };
    let fingerprint = Fingerprint { event: 1, key: 0 };
    let mut marked = KnownEvents::default();
    marked.load([Mark { position, fingerprint, is_dead_letter: false }].into_iter(), lsn(100));
    EarlierEvents { marked, topics }
}

#[test]
fn a_claim_counts_unless_its_transaction_does_not_come_any_more() {
    let prefix = ConfirmedPrefix { commit_lsn: lsn(150), events: 1024, digest: 7 };
    for (confirmed, counts) in [(150, true), (151, false)] {
        let mut earlier =
            EarlierEvents { marked: KnownEvents::default(), topics: ReadBack::default() };
        let mut left = LeftMarks::default();
        left.prefix = Some(prefix);
        assert_eq!(earlier.load(&left, lsn(confirmed)), counts.then_some(prefix));
        assert_eq!(earlier.is_active(), counts);
    }
}

#[test]
fn marks_are_forgotten_behind_the_last_transaction_that_they_name() {
    let mut earlier = marked(ReadBack::default());
    earlier.begin(lsn(150));
    assert!(earlier.is_active());
    earlier.begin(lsn(151));
    assert!(!earlier.is_active());
}

#[test]
fn neither_marks_nor_topics_count_once_they_are_forgotten() {
    let (topics, _end) = started();
    let mut earlier = marked(topics);
    earlier.forget();
    assert!(!earlier.is_active());
}

#[test]
fn topics_are_not_looked_into_behind_what_an_earlier_process_can_have_received() {
    let (topics, _end) = started();
    let mut earlier = marked(topics);
    assert!(!earlier.awaits_topic(lsn(199)));
    assert!(earlier.topics.is_active());
    assert!(!earlier.awaits_topic(lsn(200)));
    assert!(!earlier.topics.is_active());
}

#[test]
fn marks_do_not_count_once_the_topics_have_turned_out_to_hold_nothing() {
    let (topics, end) = started();
    let mut earlier = marked(topics);
    let find = |topics: &mut ReadBack| with(150, 2, |event| topics.find(event, lsn(150)));
    assert_eq!(find(&mut earlier.topics), None);
    answer(&mut earlier.topics, &end, &[]);
    for _ in 0..=1 << 16 {
        assert!(find(&mut earlier.topics).is_some());
    }
    assert!(earlier.is_active());
    earlier.begin(lsn(150));
    assert!(!earlier.is_active());
}

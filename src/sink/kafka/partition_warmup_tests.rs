use super::*;

impl Item for &str {
    fn lane(&self) -> Option<u64> {
        None
    }

    fn unique(&self) -> Option<&str> {
        None
    }

    fn size_bytes(&self) -> usize {
        WAITING_BYTES_MAX / 2
    }
}

fn numbers(waited: Vec<(Sequence, &str)>) -> Vec<Sequence> {
    waited.into_iter().map(|(sequence, _)| sequence).collect()
}

#[test]
fn a_topic_is_one_partition_until_their_number_is_known() {
    let mut opening = PartitionWarmup::default();
    // GIVEN an event under way, and others behind it
    assert_eq!(opening.pass(0, None), PartitionState::Alone);
    opening.flies(0, None, 1);
    assert_eq!(opening.pass(0, Some(5)), PartitionState::Closed);
    opening.wait(0, Some(5), 2, "b");
    assert!(!opening.is_crowded());
    // WHEN it is confirmed THEN the number is asked for, and one more may go
    let landed = opening.landed(1, Some(1));
    assert_eq!((landed.ask, numbers(landed.waited)), (Some(0), vec![2]));
    assert_eq!(opening.pass(0, None), PartitionState::Alone);
    opening.flies(0, None, 2);
    opening.wait(0, None, 3, "c");
    // WHEN the number comes THEN it counts once nothing is under way to an unknown partition
    assert!(opening.counted(0, 3).is_empty());
    assert_eq!(opening.partitions(0), None);
    let landed = opening.landed(2, Some(0));
    assert_eq!((landed.ask, numbers(landed.waited)), (None, vec![3]));
    assert_eq!(opening.partitions(0), Some(3));
    // AND partitions that have confirmed something are open, the other is not, a fourth is not ours
    let passes = [0, 1, 2, 3].map(|partition| opening.pass(0, Some(partition)));
    assert_eq!(
        passes,
        [PartitionState::Open, PartitionState::Open, PartitionState::Alone, PartitionState::Open]
    );
    assert!(!opening.is_open(0));
}

#[test]
fn a_partition_opens_with_its_first_confirm_and_not_with_a_failure() {
    let mut opening = PartitionWarmup::default();
    assert_eq!(opening.pass(4, None), PartitionState::Alone);
    assert!(opening.counted(4, 2).is_empty());
    opening.flies(4, Some(0), 10);
    opening.wait(4, Some(0), 11, "a");
    opening.flies(4, Some(1), 12);
    opening.wait(4, Some(1), 13, "b");
    // WHEN the first fails THEN what waited may try, one at a time
    assert_eq!(numbers(opening.landed(10, None).waited), [11]);
    assert_eq!(opening.pass(4, Some(0)), PartitionState::Alone);
    opening.flies(4, Some(0), 11);
    assert_eq!(opening.pass(4, Some(0)), PartitionState::Closed);
    // WHEN each has confirmed something THEN the topic is open
    assert!(opening.landed(11, Some(0)).waited.is_empty());
    assert!(!opening.is_open(4));
    assert_eq!(numbers(opening.landed(12, Some(1)).waited), [13]);
    assert!(opening.is_open(4) && opening.is_idle());
    // AND what was never alone says nothing
    assert!(opening.landed(99, Some(1)).waited.is_empty());
}

#[test]
fn a_topic_that_grows_sends_what_waits_to_where_it_belongs_now() {
    // GIVEN a topic of two partitions, one open and one with something that waits
    let mut opening = PartitionWarmup::default();
    assert_eq!(opening.pass(0, None), PartitionState::Alone);
    assert!(opening.counted(0, 2).is_empty());
    opening.flies(0, Some(0), 1);
    assert!(opening.landed(1, Some(0)).waited.is_empty());
    opening.flies(0, Some(1), 2);
    opening.wait(0, Some(1), 3, "a");
    assert_eq!(opening.divided().collect::<Vec<_>>(), [0]);
    // WHEN it is asked again and has three THEN nothing that was open closes
    assert!(opening.counted(0, 2).is_empty());
    assert_eq!(numbers(opening.counted(0, 3)), [3]);
    assert_eq!(opening.partitions(0), Some(3));
    let passes = [0, 2].map(|partition| opening.pass(0, Some(partition)));
    assert_eq!(passes, [PartitionState::Open, PartitionState::Alone]);
    // AND the one under way still opens its own
    assert_eq!(opening.pass(0, Some(1)), PartitionState::Closed);
    assert!(opening.landed(2, Some(1)).waited.is_empty());
    assert_eq!(opening.pass(0, Some(1)), PartitionState::Open);
}

#[test]
fn a_topic_that_was_made_anew_begins_anew() {
    let mut opening = PartitionWarmup::default();
    assert_eq!(opening.pass(0, None), PartitionState::Alone);
    assert!(opening.counted(0, 3).is_empty());
    opening.flies(0, Some(2), 1);
    opening.wait(0, Some(2), 2, "a");
    assert_eq!(numbers(opening.forget(0)), [2]);
    assert_eq!(opening.partitions(0), None);
    assert_eq!(opening.pass(0, None), PartitionState::Alone);
    // WHEN the answer about what was under way comes THEN it is about nothing any more
    assert!(opening.landed(1, None).waited.is_empty());
    assert!(opening.is_idle());
}

#[test]
fn no_more_than_a_few_bytes_wait() {
    let mut opening = PartitionWarmup::default();
    assert_eq!(opening.pass(0, None), PartitionState::Alone);
    opening.flies(0, None, 1);
    opening.wait(0, None, 2, "b");
    opening.wait(0, None, 3, "c");
    assert!(opening.is_crowded());
    // WHEN they go on, however that comes, THEN others may come
    assert_eq!(numbers(opening.landed(1, None).waited), [2, 3]);
    assert!(!opening.is_crowded());
    opening.flies(0, None, 2);
    opening.wait(0, None, 3, "c");
    opening.wait(0, None, 4, "d");
    assert!(opening.is_crowded());
    assert_eq!(numbers(opening.forget(0)), [3, 4]);
    assert!(!opening.is_crowded());
}

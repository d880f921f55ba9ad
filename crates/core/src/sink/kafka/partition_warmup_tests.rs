use super::*;

fn no_key(_: &[u8]) -> i32 {
    unreachable!("no event has a key")
}

#[test]
fn a_topic_is_one_partition_until_their_number_is_known() {
    let mut warmup = PartitionWarmup::default();
    // GIVEN an event under way, and others behind it
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    warmup.sent_alone(0, None, None, 1);
    assert_eq!(warmup.state(0, Some(5)), PartitionState::Busy);
    warmup.wait(0, Some(5), 2);
    // WHEN it is confirmed THEN the number is asked for, and one more may go
    assert_eq!(warmup.answered(1, Some(1)), [2]);
    assert_eq!(warmup.topics_to_count(false), [0]);
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    warmup.sent_alone(0, None, None, 2);
    warmup.wait(0, None, 3);
    // WHEN the number comes THEN it counts once nothing is under way to an unknown partition
    assert!(warmup.counted(0, 3, no_key).is_empty());
    assert_eq!(warmup.partitions(0), None);
    assert_eq!(warmup.answered(2, Some(0)), [3]);
    assert!(warmup.topics_to_count(false).is_empty());
    assert_eq!(warmup.partitions(0), Some(3));
    // AND partitions that have confirmed something are open, the other is not, a fourth is not ours
    let passes = [0, 1, 2, 3].map(|partition| warmup.state(0, Some(partition)));
    assert_eq!(
        passes,
        [PartitionState::Open, PartitionState::Open, PartitionState::Idle, PartitionState::Idle]
    );
    assert!(!warmup.is_open(0, Some(0)));
}

#[test]
fn a_partition_opens_with_its_first_confirm_and_not_with_a_failure() {
    let mut warmup = PartitionWarmup::default();
    assert_eq!(warmup.state(4, None), PartitionState::Idle);
    assert!(warmup.counted(4, 2, no_key).is_empty());
    warmup.sent_alone(4, Some(0), None, 10);
    warmup.wait(4, Some(0), 11);
    warmup.sent_alone(4, Some(1), None, 12);
    warmup.wait(4, Some(1), 13);
    // WHEN the first fails THEN what waited may try, one at a time
    assert_eq!(warmup.answered(10, None), [11]);
    assert_eq!(warmup.state(4, Some(0)), PartitionState::Idle);
    warmup.sent_alone(4, Some(0), None, 11);
    assert_eq!(warmup.state(4, Some(0)), PartitionState::Busy);
    // WHEN each has confirmed something THEN the topic is open
    assert!(warmup.answered(11, Some(0)).is_empty());
    assert!(!warmup.is_open(4, Some(0)));
    assert_eq!(warmup.answered(12, Some(1)), [13]);
    assert!(warmup.is_open(4, Some(0)) && warmup.is_idle());
    // AND what was never alone says nothing
    assert!(warmup.answered(99, Some(1)).is_empty());
}

#[test]
fn partitions_are_closed_once_it_is_known_where_everything_is() {
    let mut warmup = PartitionWarmup::default();
    // GIVEN an event under way to an unknown partition of two
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    warmup.sent_alone(0, None, None, 1);
    assert!(warmup.counted(0, 2, no_key).is_empty());
    // WHEN they are closed THEN it keeps all of them busy
    warmup.close();
    assert_eq!([0, 1].map(|it| warmup.state(0, Some(it))), [PartitionState::Busy; 2]);
    assert!(warmup.answered(1, Some(0)).is_empty());
    let states = |warmup: &mut PartitionWarmup| [0, 1].map(|it| warmup.state(0, Some(it)));
    assert_eq!(states(&mut warmup), [PartitionState::Open, PartitionState::Idle]);
    // WHEN they are closed again THEN each must confirm an event again
    warmup.close();
    assert_eq!(states(&mut warmup), [PartitionState::Idle; 2]);
}

#[test]
fn a_topic_that_grows_releases_what_waits_for_a_partition() {
    // GIVEN a topic of two partitions, one open and one with something that waits
    let mut warmup = PartitionWarmup::default();
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    assert!(warmup.counted(0, 2, no_key).is_empty());
    warmup.sent_alone(0, Some(0), None, 1);
    assert!(warmup.answered(1, Some(0)).is_empty());
    warmup.sent_alone(0, Some(1), None, 2);
    warmup.wait(0, Some(1), 3);
    assert_eq!(warmup.topics_to_count(true), [0]);
    // WHEN it is asked again and has three THEN nothing that was open closes
    assert!(warmup.counted(0, 2, no_key).is_empty());
    assert_eq!(warmup.counted(0, 3, no_key), [3]);
    assert_eq!(warmup.partitions(0), Some(3));
    let passes = [0, 2].map(|partition| warmup.state(0, Some(partition)));
    assert_eq!(passes, [PartitionState::Open, PartitionState::Idle]);
    // AND the one under way still opens its own
    assert_eq!(warmup.state(0, Some(1)), PartitionState::Busy);
    assert!(warmup.answered(2, Some(1)).is_empty());
    assert_eq!(warmup.state(0, Some(1)), PartitionState::Open);
}

#[test]
fn a_topic_that_was_made_anew_begins_anew() {
    let mut warmup = PartitionWarmup::default();
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    assert!(warmup.counted(0, 3, no_key).is_empty());
    warmup.sent_alone(0, Some(2), None, 1);
    warmup.wait(0, Some(2), 2);
    assert_eq!(warmup.forget(0, [(1, Some(2))].into_iter()), [2]);
    // Others may fail for the same reason.
    assert!(warmup.forget(0, std::iter::empty()).is_empty());
    assert_eq!(warmup.changes(0), 1);
    assert_eq!(warmup.partitions(0), None);
    // THEN nothing may be sent behind what is under way, until it is known where that is
    assert_eq!(warmup.state(0, None), PartitionState::Busy);
    warmup.wait(0, None, 2);
    assert_eq!(warmup.topics_to_count(false), [0]);
    assert_eq!(warmup.counted(0, 3, no_key), [2]);
    let states = [1, 2].map(|partition| warmup.state(0, Some(partition)));
    assert_eq!(states, [PartitionState::Idle, PartitionState::Busy]);
    warmup.wait(0, Some(2), 3);
    // WHEN its answer comes THEN it says nothing of the new partition
    assert_eq!(warmup.answered(1, Some(2)), [3]);
    assert_eq!(warmup.state(0, Some(2)), PartitionState::Idle);
    assert!(warmup.is_idle());
}

#[test]
fn an_event_of_before_holds_the_topic_until_it_is_answered_and_opens_nothing() {
    // GIVEN an event under way alone, and another one that went to an open partition
    let mut warmup = sent_to();
    warmup.forget(0, [(1, None), (9, Some(0))].into_iter());
    assert_eq!((warmup.changes(0), warmup.topics_to_count(false)), (1, vec![0]));
    warmup.wait(0, None, 10);
    // THEN its partitions are asked for again, and those of no other topic
    warmup.state(1, None);
    assert_eq!(warmup.topics_to_count(true), [0]);
    assert!(warmup.answered(1, Some(0)).is_empty());
    assert_eq!(warmup.answered(9, Some(0)), [10]);
    assert!(warmup.counted(0, 1, no_key).is_empty());
    assert_eq!(warmup.state(0, Some(0)), PartitionState::Idle);
}

#[test]
fn a_partition_beyond_those_that_were_counted_has_one_event_under_way() {
    // GIVEN a topic of one partition, which is open
    let mut warmup = PartitionWarmup::default();
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    assert!(warmup.counted(0, 1, no_key).is_empty());
    warmup.sent_alone(0, Some(0), None, 1);
    assert!(warmup.answered(1, Some(0)).is_empty());
    assert!(warmup.is_open(0, Some(0)) && !warmup.is_open(0, Some(2)) && !warmup.is_open(0, None));
    // WHEN an event goes to a partition that was added since THEN another waits, and they are counted
    assert_eq!(warmup.state(0, Some(2)), PartitionState::Idle);
    warmup.sent_alone(0, Some(2), None, 2);
    assert_eq!(warmup.state(0, Some(2)), PartitionState::Busy);
    warmup.wait(0, Some(2), 3);
    assert_eq!(warmup.topics_to_count(false), [0]);
    // AND an answer that does not know it yet changes nothing
    assert!(warmup.counted(0, 2, no_key).is_empty());
    warmup.close();
    assert_eq!((warmup.partitions(0), warmup.changes(0)), (Some(1), 0));
    assert_eq!(warmup.counted(0, 3, no_key), [3]);
    assert_eq!(warmup.changes(0), 1);
    let states = [0, 1, 2].map(|partition| warmup.state(0, Some(partition)));
    assert_eq!(states, [PartitionState::Idle, PartitionState::Idle, PartitionState::Busy]);
    // WHEN another one is confirmed before they are counted THEN they are counted all the same
    warmup.sent_alone(0, Some(3), None, 4);
    assert!(warmup.answered(4, Some(3)).is_empty());
    assert_eq!(warmup.topics_to_count(false), [0]);
    assert!(warmup.has_fewer(0, 2) && !warmup.has_fewer(0, 3));
}

#[test]
fn an_event_without_an_answer_holds_only_its_own_partition() {
    let fixed = (Some(1), None);
    let keyed = (None, Some(b"k".as_slice()));
    for (to, key) in [fixed, keyed] {
        // GIVEN a fresh producer, whose first event goes to a partition that does not answer
        let mut warmup = PartitionWarmup::default();
        assert_eq!(warmup.state(0, to), PartitionState::Idle);
        warmup.sent_alone(0, to, key, 1);
        warmup.wait(0, None, 2);
        // WHEN the partitions are counted, which needs no confirm
        assert_eq!(warmup.topics_to_count(false), [0]);
        let released = warmup.counted(0, 3, |key| {
            assert_eq!(key, b"k");
            1
        });
        // THEN what waited is released, and only the partition of that event is busy
        assert_eq!(released, [2]);
        let states = [0, 1, 2].map(|partition| warmup.state(0, Some(partition)));
        assert_eq!(states, [PartitionState::Idle, PartitionState::Busy, PartitionState::Idle]);
        // AND its confirm opens that partition
        warmup.wait(0, Some(1), 3);
        assert_eq!(warmup.answered(1, Some(1)), [3]);
        assert_eq!(warmup.state(0, Some(1)), PartitionState::Open);
        assert!(warmup.is_idle());
    }
}

#[test]
fn an_event_whose_partition_the_client_chooses_holds_the_topic() {
    for key in [None, Some(b"".as_slice())] {
        let mut warmup = PartitionWarmup::default();
        assert_eq!(warmup.state(0, None), PartitionState::Idle);
        warmup.sent_alone(0, None, key, 1);
        warmup.wait(0, None, 2);
        assert_eq!([true; 2].map(|again| warmup.topics_to_count(again)), [[0]; 2]);
        assert!(warmup.counted(0, 3, no_key).is_empty());
        assert_eq!(warmup.partitions(0), None);
        // AND it is asked for again, now and then
        assert!(warmup.topics_to_count(false).is_empty());
        assert_eq!(warmup.topics_to_count(true), [0]);
        assert_eq!(warmup.answered(1, Some(2)), [2]);
        assert_eq!(warmup.partitions(0), Some(3));
    }
}

#[test]
fn a_partition_that_may_not_be_that_of_the_event_under_way_opens_with_its_answer() {
    let mut warmup = PartitionWarmup::default();
    // GIVEN a partition that has confirmed an event, and another event under way to any
    warmup.state(0, None);
    warmup.sent_alone(0, None, None, 1);
    assert!(warmup.answered(1, Some(0)).is_empty());
    warmup.sent_alone(0, None, Some(b"k"), 2);
    // WHEN the topic turns out to have one partition THEN the key waits: the client may have known more
    assert!(warmup.counted(0, 1, |_| 0).is_empty());
    assert_eq!(warmup.state(0, Some(0)), PartitionState::Busy);
    warmup.wait(0, Some(0), 3);
    assert_eq!(warmup.answered(2, None), [3]);
    assert!(warmup.is_open(0, Some(0)));
    assert_eq!(warmup.changes(0), 0);
    // AND with another number of partitions its keys may have others
    assert!(warmup.counted(0, 2, |_| 0).is_empty());
    assert_eq!(warmup.changes(0), 1);
    assert!(!warmup.is_open(0, Some(1)), "it has confirmed nothing");
}

#[test]
fn an_event_for_any_partition_passes_those_that_do_not_answer() {
    let mut warmup = PartitionWarmup::default();
    warmup.state(0, None);
    assert_eq!(warmup.any_partition(0, 5), None);
    assert!(warmup.counted(0, 3, no_key).is_empty());
    let numbers = [3, 4, 5].map(|it| it * NEIGHBOURS);
    assert_eq!(numbers.map(|it| warmup.any_partition(0, it)), [Some(0), Some(1), Some(2)]);
    assert_eq!(warmup.any_partition(0, 4 * NEIGHBOURS - 1), Some(0));
    // GIVEN one that does not answer THEN the next is taken, around the end
    warmup.sent_alone(0, Some(2), None, 5);
    assert_eq!(warmup.any_partition(0, 8 * NEIGHBOURS), Some(0));
    // AND its own if none answers
    [0, 1].into_iter().for_each(|it| warmup.sent_alone(0, Some(it), None, 6 + it as u64));
    assert_eq!(warmup.any_partition(0, 8 * NEIGHBOURS), Some(2));
}

#[test]
fn confirms_from_before_a_close_open_nothing() {
    let mut warmup = PartitionWarmup::default();
    // GIVEN a topic whose partitions are not counted, and a confirm
    warmup.state(0, None);
    warmup.sent_alone(0, None, None, 1);
    assert!(warmup.answered(1, Some(0)).is_empty());
    // WHEN it is closed, and counted later
    warmup.close();
    assert!(warmup.counted(0, 2, no_key).is_empty());
    // THEN the partition must confirm an event again
    assert_eq!(warmup.state(0, Some(0)), PartitionState::Idle);
}

#[test]
fn a_topic_is_known_to_be_another_also_after_its_partitions_were_forgotten() {
    let mut warmup = PartitionWarmup::default();
    warmup.state(0, None);
    assert!(!warmup.is_another(0, 3));
    warmup.counted(0, 2, |_| 0);
    warmup.forget(0, std::iter::empty());
    assert!(warmup.is_another(0, 4));
}

/// A topic to which one event was sent.
fn sent_to() -> PartitionWarmup {
    let mut warmup = PartitionWarmup::default();
    assert_eq!(warmup.state(0, None), PartitionState::Idle);
    warmup.sent_alone(0, None, Some(b"k"), 1);
    warmup
}

#[test]
fn what_has_confirmed_before_it_was_counted_is_forgotten_with_its_topic() {
    // GIVEN a topic that has confirmed an event and is missing before it is described
    let mut warmup = sent_to();
    warmup.answered(1, Some(0));
    warmup.forget(0, std::iter::empty());
    // WHEN it was made anew, and another partition has confirmed an event
    warmup.sent_alone(0, None, Some(b"l"), 2);
    warmup.answered(2, Some(1));
    warmup.counted(0, 2, no_key);
    // THEN the partition of before is not open
    let states = [0, 1].map(|partition| warmup.state(0, Some(partition)));
    assert_eq!(states, [PartitionState::Idle, PartitionState::Open]);
}

#[test]
fn a_topic_that_has_confirmed_and_is_described_behind_an_outage_may_be_another_one() {
    let mut warmup = sent_to();
    warmup.answered(1, Some(0));
    warmup.broker_unreachable();
    // Its partitions may be forgotten meanwhile.
    warmup.sent_alone(0, None, Some(b"k"), 2);
    warmup.forget(0, std::iter::empty());
    assert_eq!([warmup.is_another(0, 3), warmup.is_another(0, 3)], [true, false]);
}

#[test]
fn a_topic_that_has_confirmed_nothing_or_has_no_id_is_not_in_doubt() {
    let mut warmup = sent_to();
    warmup.broker_unreachable();
    assert!(!warmup.is_another(0, 3));
    // Brokers that give no ids
    let mut warmup = sent_to();
    warmup.answered(1, Some(0));
    warmup.broker_unreachable();
    assert!(!warmup.is_another(0, 0));
    assert!(!warmup.is_another(0, 3));
}

//! Against a model of what lapin does: returns wait in a queue, and whichever confirm completes
//! next takes the head of it along.

use std::collections::VecDeque;

use proptest::prelude::*;
use walrelay_harness::kit::volume;

use super::*;

fn returned(id: &str) -> ReturnedMessage {
    ReturnedMessage { id: id.to_owned(), code: 312, text: "NO_ROUTE".to_owned() }
}

fn completion(sequence: Sequence, carried: Option<&str>) -> CompletedConfirm {
    CompletedConfirm {
        sequence,
        id: sequence.to_string(),
        acked: true,
        carried: carried.map(returned),
    }
}

#[test]
fn a_return_belongs_to_the_id_it_names() {
    let mut returns = Returns::default();
    // GIVEN 5 came back, and the confirm of 3 carries it
    let verdicts = returns.settle(vec![completion(3, Some("5"))]);
    assert!(verdicts.is_empty(), "3 may have come back as well: {verdicts:?}");
    // WHEN 5 itself is confirmed, carrying nothing
    let verdicts = returns.settle(vec![completion(5, None)]);
    // THEN 3 was routed and 5 was not
    assert_eq!(
        verdicts,
        [(3, PublishOutcome::Confirmed), (5, PublishOutcome::Returned(returned("5")))]
    );
}

#[test]
fn a_confirm_that_carries_anothers_return_may_have_its_own_still_to_come() {
    let mut returns = Returns::default();
    // GIVEN 1 and 2 both came back, and 2 was acked first
    assert!(returns.settle(vec![completion(2, Some("1"))]).is_empty());
    // WHEN 1 is acked and carries what is left
    let verdicts = returns.settle(vec![completion(1, Some("2"))]);
    // THEN neither was routed
    let both = [
        (2, PublishOutcome::Returned(returned("2"))),
        (1, PublishOutcome::Returned(returned("1"))),
    ];
    assert_eq!(verdicts, both);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Routed,
    Nacked,
    Unroutable,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Routed),
        1 => Just(Fate::Nacked),
        3 => Just(Fate::Unroutable),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(volume(1_000, 4_000)))]

    #[test]
    fn every_message_meets_its_fate_whatever_the_order(
        fates in prop::collection::vec(fate(), 1..24),
        picks in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0u8..4), 200),
    ) {
        let mut returns = Returns::default();
        // What lapin holds, what is on the wire, and what the test has not looked at yet.
        let mut queue: VecDeque<usize> = VecDeque::new();
        let mut to_return: Vec<usize> =
            (0..fates.len()).filter(|&it| fates[it] == Fate::Unroutable).collect();
        let mut to_confirm: Vec<usize> = (0..fates.len()).collect();
        let mut unseen: Vec<CompletedConfirm> = Vec::new();
        let mut settled: HashMap<Sequence, PublishOutcome> = HashMap::new();
        let mut picks = picks.into_iter().cycle();
        while !to_confirm.is_empty() || !unseen.is_empty() {
            let (give_back, pick, look) = picks.next().unwrap();
            // Confirmable is what need not be, or already has been, returned.
            let free: Vec<usize> = (0..to_confirm.len())
                .filter(|&at| !to_return.contains(&to_confirm[at]))
                .collect();
            if !to_return.is_empty() && (give_back || free.is_empty()) {
                queue.push_back(to_return.swap_remove(pick.index(to_return.len())));
            } else if !free.is_empty() {
                let message = to_confirm.swap_remove(free[pick.index(free.len())]);
                let carried = queue.pop_front().map(|it| returned(&it.to_string()));
                let acked = fates[message] != Fate::Nacked;
                let (sequence, id) = (message as Sequence, message.to_string());
                unseen.push(CompletedConfirm { sequence, id, acked, carried });
            }
            if look == 0 || to_confirm.is_empty() {
                // A batch leaves nothing out, but has no order.
                let mut batch = std::mem::take(&mut unseen);
                let middle = pick.index(batch.len().max(1));
                batch.rotate_left(middle);
                for (sequence, verdict) in returns.settle(batch) {
                    prop_assert!(settled.insert(sequence, verdict).is_none(), "settled twice");
                }
            }
        }
        for (message, fate) in fates.iter().enumerate() {
            let verdict = settled.remove(&(message as Sequence));
            let expected = match fate {
                Fate::Routed => PublishOutcome::Confirmed,
                Fate::Nacked => PublishOutcome::Nacked,
                Fate::Unroutable => PublishOutcome::Returned(returned(&message.to_string())),
            };
            prop_assert_eq!(verdict, Some(expected), "message {}", message);
        }
        prop_assert!(returns.ahead.is_empty() && returns.undecided.is_empty(), "nothing is left");
    }
}

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::relay::testing::MemoryFile;

const PLACE: u64 = 7;

/// The marks by their numbers.
fn mark(number: u64) -> Mark {
    let position = Position { commit_lsn: Lsn::from_wire(number), ordinal: number % 5 };
    let fingerprint = Fingerprint { event: number | 1 << 63, key: number as u32 };
    Mark { position, fingerprint, is_dead_letter: number.is_multiple_of(3) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The ring holds the last marks in their order, whatever is written at once and whenever the
    /// process dies.
    #[test]
    fn the_last_marks_are_there_in_order(
        steps in prop::collection::vec((1..MARKS / 2 + 3, any::<bool>()), 1..8),
    ) {
        let file = MemoryFile::default();
        let mut process = file.open();
        process.take_over_at(PLACE, Some(SlotSession::default()));
        let (mut model, mut number) = (VecDeque::new(), 0);
        for (count, dies) in steps {
            for _ in 0..count {
                number += 1;
                process.marks.push(mark(number));
                model.push_back(number);
            }
            process.marks.write();
            while model.len() as u64 > MARKS {
                model.pop_front();
            }
            if dies {
                drop(process);
                process = file.open();
                let left = process.take_over_at(PLACE, Some(SlotSession::default()));
                prop_assert!(left.iter().eq(model.iter().map(|number| mark(*number))));
            }
        }
    }
}

use super::*;
use crate::source::faults::slot_lost;

#[test]
fn a_missing_slot_that_was_named_is_not_that_of_the_configuration() {
    let fault = of_argument(slot_missing("nosuch"));
    assert_eq!((fault.code, fault.place.as_str()), ("slot.missing", "NAME"));
    assert!(fault.mend.starts_with("to list the slots: SELECT slot_name"), "{fault}");
    // THEN other faults stay as they are
    let lost = slot_lost("nosuch", "wal_removed", &"0/1");
    assert_eq!(of_argument(lost.clone()), lost);
}

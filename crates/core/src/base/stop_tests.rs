use super::*;
use crate::base::lsn::Lsn;

#[test]
fn the_next_process_ends_with_the_same_fault_and_says_since_when() {
    let (from, to) = (Lsn::from_wire(0x10), Lsn::from_wire(0x20));
    for (code, exit) in CODES {
        let fault = Fault::new(exit, code, "rows are missing", "slot s", "walrelay resume");
        let stop = Stop::of(&fault.clone().standing(from, to), 1_000_000);
        let json = serde_json::to_string(&stop).unwrap();
        let again = serde_json::from_str::<Stop>(&json).unwrap().fault().unwrap();
        assert_eq!((again.code, again.exit), (code, exit));
        assert_eq!(again.doubt.as_deref(), Some(&Doubt { from, to }));
        assert_eq!((&again.place, &again.mend), (&fault.place, &fault.mend));
        assert!(again.what.contains("since 1970-01-01T00:00:01"), "{}", again.what);
        assert!(again.what.ends_with(&fault.what));
    }
}

#[test]
fn a_code_that_no_stop_has_stops_nothing() {
    let stop = Stop { code: "slot.missing".to_owned(), ..Stop::default() };
    assert_eq!(stop.fault(), None);
}

#[test]
fn what_is_kept_has_a_bound() {
    let fault = Fault::new(Exit::Slot, "slot.moved", "x".repeat(100_000), "", "");
    assert!(Stop::of(&fault, 0).what.len() <= TEXT_BYTES_MAX);
}

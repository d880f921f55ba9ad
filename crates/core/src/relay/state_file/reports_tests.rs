use super::*;
use crate::relay::testing::MemoryFile;
use crate::testing::lsn;

#[test]
fn a_slot_that_stands_where_no_report_has_left_it_was_another_relays() {
    let words = MemoryFile::default().bytes();
    let reports = Reports(&words);
    assert!(reports.show_another_relay(lsn(800)), "nothing was reported");
    // GIVEN a process that took the slot at 800, left a trace, and has made reports since
    let signature = Signature::drawn(0);
    let own = |number: u64| 32 * number + 1;
    assert!(signature.is_on(lsn(own(1))));
    reports.begin(lsn(800), signature);
    for number in 25..40 {
        reports.push(lsn(own(number)));
        reports.push(lsn(own(number)));
    }
    let another = |position| reports.show_another_relay(lsn(position));
    // THEN Postgres may not have read the last of them
    assert!([own(39), own(38), own(25), 800].iter().all(|position| !another(*position)));
    // A relay that took the slot at any of them has left a trace; or it has confirmed events.
    assert!([own(39) + 1, own(38) + 2, 805, 1000].iter().all(|position| another(*position)));
    // Postgres was restarted, and the slot is back at an older report.
    assert!([792, 8].iter().all(|position| !another(*position)));
    assert!([794, 799].iter().all(|position| another(*position)), "of other relays");
    // WHEN many reports follow THEN those of long ago are known by their signature
    for number in 40..90 {
        reports.push(lsn(own(number)));
    }
    let kept = [own(89), own(74), own(40), own(25), 800];
    assert!(kept.iter().all(|position| !another(*position)));
    assert!([own(90), own(89) + 2, own(60) + 1, 803].iter().all(|position| another(*position)));
}

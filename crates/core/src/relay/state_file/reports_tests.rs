use super::*;
use crate::relay::testing::MemoryFile;

fn lsn(number: u64) -> Lsn {
    Lsn::from_wire(number)
}

#[test]
fn a_slot_that_stands_where_no_report_has_left_it_was_another_relays() {
    let words = MemoryFile::default().bytes();
    let reports = Reports(&words);
    // GIVEN a process that took the slot at 800, left a trace, and has made reports since
    reports.begin(lsn(800));
    reports.push(lsn(803));
    for position in (808..=880).step_by(8) {
        reports.push(lsn(position));
        reports.push(lsn(position));
    }
    let another = |position| reports.show_another_relay(lsn(position));
    // THEN Postgres may not have read the last of them
    assert!([880, 872, 808, 803, 800].iter().all(|position| !another(*position)));
    // A relay that took the slot at any of them has left a trace; or it has confirmed events.
    assert!([888, 881, 879, 873, 805, 801].iter().all(|position| another(*position)));
    // WHEN many reports follow THEN those of long ago count no more
    for position in (888..2000).step_by(8) {
        reports.push(lsn(position));
    }
    assert!([1992, 1880].iter().all(|position| !another(*position)));
    assert!([2000, 1993, 1889, 803].iter().all(|position| another(*position)));
}

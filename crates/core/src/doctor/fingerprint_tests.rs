use super::*;
use crate::outbox::settings::OutboxTable;
use crate::source::faults::publication_missing;

#[test]
fn a_gap_names_what_could_have_left_rows_out() {
    let help = compare_and_resume(&SourceSettings::default());
    let last = "if INSERT was let through for all rows all the time, no table was unlogged, and no partition was \
                detached or dropped while publish_via_partition_root was false, nothing is missing";
    assert!(help.ends_with(last), "{help}");
}

#[test]
fn a_stop_for_want_of_the_publication_ends_with_the_command_that_acknowledges_it() {
    let settings =
        SourceSettings { outboxes: vec![OutboxTable::default()], ..SourceSettings::default() };
    let fault = publication_missing(&settings, true);
    assert!(fault.mend.ends_with("\nthen start again"), "{}", fault.mend);
    // WHEN a relay stops with it
    let stop = gap(fault, Doubt::default(), &settings);
    // THEN the rows are published by one statement, and nobody is sent to a start that ends with it
    assert!(stop.doubt.is_some());
    assert_eq!(stop.mend.matches("WITH moved AS").count(), 1, "{}", stop.mend);
    let last = stop.mend.lines().last().unwrap_or_default();
    assert_eq!(
        last,
        "then acknowledge it: walrelay resume, and start again. Until then every start ends with this"
    );
    assert!(!stop.mend.contains("then start again"), "{}", stop.mend);
}

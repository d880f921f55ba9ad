use super::*;
use crate::outbox::settings::OutboxTable;
use crate::source::faults::publication_missing;

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

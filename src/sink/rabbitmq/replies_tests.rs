use super::*;

#[test]
fn a_code_that_is_not_known_is_told_apart() {
    assert_eq!(closed(406), Some(("precondition-failed", Closed::Message)));
    for code in [NOT_TOLD, 200, 312, 404 + 1000, 599, u16::MAX] {
        assert_eq!(closed(code), None, "{code}");
    }
    assert_eq!(returned(312), Some(("no-route", Disposition::Transient)));
    assert_eq!(returned(311), None);
    assert_eq!(closed_class(599), "rabbitmq.closed-599");
    assert_eq!(returned_class(599), "rabbitmq.returned-599");
}

#[test]
fn the_lines_for_people_are_what_is_done() {
    let rows = rows();
    let row = |class: &str, disposition| {
        rows.iter().any(|row| row.class == class && row.disposition == disposition)
    };
    assert!(row("rabbitmq.precondition-failed", Disposition::Terminal));
    assert!(row("rabbitmq.access-refused", Disposition::Outage));
    assert!(row("rabbitmq.no-route", Disposition::Transient));
    assert!(row("rabbitmq.not-implemented", Disposition::Halt));
    assert_eq!(rows.len(), 17 + 2 + 8);
}

use super::*;

#[test]
fn a_code_that_is_not_known_is_told_apart() {
    assert_eq!(close_meaning(320), CloseMeaning::BrokerFailure);
    assert_eq!(close_class(406), ("rabbitmq.precondition-failed".to_owned(), true));
    for code in [UNKNOWN_CODE, 200, 312, 404 + 1000, 599, u16::MAX] {
        assert_eq!((close_meaning(code), close_class(code).1), (BadMessage, false), "{code}");
    }
    assert_eq!(return_class(312), ("rabbitmq.no-route".to_owned(), true));
    assert!(!return_class(311).1);
    assert_eq!(close_class(599).0, "rabbitmq.closed-599");
    assert_eq!(return_class(599).0, "rabbitmq.returned-599");
}

#[test]
fn the_lines_for_people_are_what_is_done() {
    let rows = rows();
    let row = |class: &str, disposition| {
        rows.iter().any(|row| row.class == class && row.disposition == disposition)
    };
    assert!(row("rabbitmq.precondition-failed", Disposition::Terminal));
    assert!(row("rabbitmq.access-refused", Disposition::Transient));
    assert!(row("rabbitmq.no-route", Disposition::Transient));
    assert!(row("rabbitmq.not-implemented", Disposition::Halt));
    assert_eq!(rows.len(), 17 + 2 + 10);
}

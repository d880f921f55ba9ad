use super::*;

#[test]
fn a_queue_that_is_down_is_not_missing() {
    let down =
        "NOT_FOUND - home node 'r@h' of durable queue 'q' in vhost '/' is down or inaccessible";
    let loss = ConnectionLoss::refused(NOT_FOUND, down.to_owned());
    assert_eq!((loss.code, loss.is_final()), (None, false));
    assert_eq!(loss.cause.map(|cause| cause.code), Some("sink.unreachable"));
    let loss =
        ConnectionLoss::refused(NOT_FOUND, "NOT_FOUND - no queue 'q' in vhost '/'".to_owned());
    assert_eq!((loss.code, loss.cause), (Some(NOT_FOUND), None));
}

#[test]
fn a_code_that_is_not_known_is_told_apart() {
    assert_eq!(close_meaning(406), Some(CloseMeaning::BadMessage));
    assert_eq!(close_class(406), ("rabbitmq.precondition-failed".to_owned(), true));
    for code in [UNKNOWN_CODE, 200, 312, 404 + 1000, 599, u16::MAX] {
        assert_eq!((close_meaning(code), close_class(code).1), (None, false), "{code}");
    }
    let no_route = ("rabbitmq.no-route".to_owned(), Some(Disposition::Transient));
    assert_eq!(return_class(312), no_route);
    assert_eq!(return_class(311).1, None);
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
    assert!(row("rabbitmq.access-refused", Disposition::Outage));
    assert!(row("rabbitmq.no-route", Disposition::Transient));
    assert!(row("rabbitmq.not-implemented", Disposition::Halt));
    assert_eq!(rows.len(), 17 + 2 + 8);
}

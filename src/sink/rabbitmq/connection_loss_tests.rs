use super::*;

#[test]
fn a_queue_that_is_down_is_not_missing() {
    let down =
        "NOT_FOUND - home node 'r@h' of durable queue 'q' in vhost '/' is down or inaccessible";
    let loss = ConnectionLoss::refused(NOT_FOUND, down);
    assert_eq!((loss.code, loss.is_final()), (None, false));
    assert_eq!(loss.cause.map(|cause| cause.code), Some("sink.unreachable"));
    let loss = ConnectionLoss::refused(NOT_FOUND, "NOT_FOUND - no queue 'q' in vhost '/'");
    assert_eq!((loss.code, loss.cause), (Some(NOT_FOUND), None));
}

#[test]
fn the_texts_of_each_version_are_read() {
    let loss = ConnectionLoss::refused;
    let missing = loss(404, "NOT_FOUND - no exchange 'it's' in vhost '/'");
    assert_eq!(missing.missing_exchange(), Some("it's"));
    assert_eq!(loss(404, "NOT_FOUND - no queue 'q' in vhost '/'").missing_exchange(), None);
    assert_eq!(loss(403, "no exchange 'x' in vhost '/'").missing_exchange(), None);
    // RabbitMQ 3 and 4.
    assert!(loss(503, "COMMAND_INVALID - unknown exchange type 'x-a'").is_unknown_exchange_type());
    let later = loss(406, "PRECONDITION_FAILED - unknown exchange type 'x-a'");
    assert!(later.is_unknown_exchange_type());
    let other = loss(406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x'");
    assert!(!other.is_unknown_exchange_type());
}

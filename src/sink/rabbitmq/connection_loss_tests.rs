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

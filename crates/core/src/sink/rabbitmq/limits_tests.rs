use super::*;

#[test]
fn what_fits_has_no_excess_and_what_does_not_says_by_how_much() {
    let limits = Limits { frame_bytes: 8_192, body_bytes: 1_000 };
    assert!(limits.excess(8_064, 1_000).is_none());
    let headers = limits.excess(8_065, 2_000).unwrap();
    assert_eq!(headers.class, "rabbitmq.headers-too-large");
    assert!(["8065", "8192", "8064"].iter().all(|size| headers.reason.contains(size)));
    let body = limits.excess(0, 1_001).unwrap();
    assert_eq!(body.class, "rabbitmq.message-too-large");
    assert!(["1001", "1000"].iter().all(|size| body.reason.contains(size)));
    assert!(Limits::default().excess(32_640, usize::MAX).is_none());
}

#[test]
fn the_largest_body_is_learned_from_a_close_and_forgotten_at_another_loss() {
    let refused = |text: &str| ConnectionLoss::refused(406, text);
    // In these words of RabbitMQ 3.10 to 4.3.
    let too_large = refused(
        "PRECONDITION_FAILED - message size 300001 is larger than configured max size 300000",
    );
    let limits = Limits { frame_bytes: 8_192, ..Limits::default() };
    let learned = limits.after(&too_large);
    assert_eq!(learned, Limits { frame_bytes: 8_192, body_bytes: 300_000 });
    assert_eq!(learned.after(&too_large), learned);
    for other in [
        refused("PRECONDITION_FAILED - invalid expiration"),
        ConnectionLoss::of("the broker closed the connection"),
    ] {
        assert_eq!(learned.after(&other), limits, "{other:?}");
    }
}

use super::*;
use crate::base::secret::Secret;

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

#[test]
fn a_limit_that_is_reached_is_no_refused_login() {
    let settings = RabbitSettings {
        vhost: "v".to_owned(),
        login: RabbitLogin::Plain("u".to_owned(), Secret::new("p")),
        ..RabbitSettings::default()
    };
    // GIVEN what RabbitMQ 3.10 and 4.0 say
    for (text, mend) in [
        (
            "NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (3)",
            "rabbitmqctl clear_user_limits \"u\" max-channels",
        ),
        (
            "NOT_ALLOWED - number of channels opened on node 'r@h' has reached the maximum allowed limit of (3)",
            "channel_max_per_node",
        ),
        (
            "NOT_ALLOWED - connection refused for user 'u': user connection limit (1) is reached",
            "rabbitmqctl clear_user_limits \"u\" max-connections",
        ),
        (
            "NOT_ALLOWED - access to vhost 'v' refused for user 'u': connection limit (1) is reached",
            "rabbitmqctl clear_vhost_limits -p \"v\"",
        ),
        (
            "NOT_ALLOWED - connection refused: node connection limit (1) is reached",
            "connection_max",
        ),
    ] {
        let loss = ConnectionLoss::refused(NOT_ALLOWED, text);
        assert!(!loss.is_final() && !loss.is_login_refused(), "{text}");
        let fault = loss.unreachable(&settings);
        assert_eq!(fault.code, UNREACHABLE);
        assert!(fault.mend.contains(mend), "{}", fault.mend);
    }
    // GIVEN a virtual host that does not exist THEN another login is refused, too
    let loss = ConnectionLoss::refused(NOT_ALLOWED, "NOT_ALLOWED - vhost v not found");
    assert!(loss.is_final() && loss.is_login_refused());
    assert_eq!(loss.unreachable(&settings).code, "sink.vhost");
}

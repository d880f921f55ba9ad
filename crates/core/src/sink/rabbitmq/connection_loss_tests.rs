use super::*;

#[test]
fn a_queue_that_is_down_is_not_missing() {
    let down =
        "NOT_FOUND - home node 'r@h' of durable queue 'q' in vhost '/' is down or inaccessible";
    let loss = ConnectionLoss::refused(NOT_FOUND, down);
    assert_eq!((loss.code, loss.is_final()), (None, false));
    assert_eq!(loss.cause.map(|cause| cause.code), Some("sink.unreachable"));
    for missing in [
        "NOT_FOUND - no queue 'q' in vhost '/'",
        "NOT_FOUND - no exchange 'down or inaccessible' in vhost '/'",
    ] {
        let loss = ConnectionLoss::refused(NOT_FOUND, missing);
        assert_eq!((loss.code, loss.cause), (Some(NOT_FOUND), None));
    }
}

#[test]
fn the_texts_of_each_version_are_read() {
    let loss = ConnectionLoss::refused;
    let missing = loss(404, "NOT_FOUND - no exchange 'it's' in vhost '/'");
    assert!(missing.misses_exchange("it's") && !missing.misses_exchange("it"));
    let long = "x".repeat(240);
    let mut cut = format!("NOT_FOUND - no exchange '{long}' in vhost '/'");
    cut.replace_range(252.., "...");
    assert!(loss(404, &cut).misses_exchange(&long) && !loss(404, &cut).misses_exchange("x"));
    assert!(!loss(404, "NOT_FOUND - no queue 'q' in vhost '/'").misses_exchange("q"));
    assert!(!loss(403, "no exchange 'x' in vhost '/'").misses_exchange("x"));
    // RabbitMQ 3 and 4.
    assert!(loss(503, "COMMAND_INVALID - unknown exchange type 'x-a'").is_unknown_exchange_type());
    let later = loss(406, "PRECONDITION_FAILED - unknown exchange type 'x-a'");
    assert!(later.is_unknown_exchange_type());
    let other = loss(406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x'");
    assert!(!other.is_unknown_exchange_type());
}

#[test]
fn a_limit_that_is_reached_is_no_refused_login() {
    let address =
        AmqpAddress { vhost: "v".to_owned(), user: Some("u".to_owned()), ..AmqpAddress::default() };
    // GIVEN what RabbitMQ 3.10 and 4.0 say
    for (text, mend) in [
        (
            "NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (3)",
            "rabbitmqctl clear_user_limits 'u' max-channels",
        ),
        (
            "NOT_ALLOWED - number of channels opened on node 'r@h' has reached the maximum allowed limit of (3)",
            "channel_max_per_node",
        ),
        (
            "NOT_ALLOWED - connection refused for user 'u': user connection limit (1) is reached",
            "rabbitmqctl clear_user_limits 'u' max-connections",
        ),
        (
            "NOT_ALLOWED - access to vhost 'v' refused for user 'u': connection limit (1) is reached",
            "rabbitmqctl clear_vhost_limits -p 'v'",
        ),
        (
            "NOT_ALLOWED - connection refused: node connection limit (1) is reached",
            "connection_max",
        ),
    ] {
        let loss = ConnectionLoss::refused(NOT_ALLOWED, text);
        assert!(!loss.is_final() && !loss.is_login_refused(), "{text}");
        let fault = loss.unreachable(&address);
        assert_eq!(fault.code, UNREACHABLE);
        assert!(fault.mend.contains(mend), "{}", fault.mend);
        // WHEN it ends a connection that was open THEN the report has the command, too
        let report = loss.interrupted(&address);
        assert!(report.starts_with(text) && report.contains(mend), "{report}");
        assert_eq!(loss.channels_max(), text.contains("channels").then_some(3), "{text}");
    }
    // GIVEN a virtual host that does not exist THEN another login is refused, too
    let loss = ConnectionLoss::refused(NOT_ALLOWED, "NOT_ALLOWED - vhost v not found");
    assert!(loss.is_final() && loss.is_login_refused());
    let fault = loss.unreachable(&address);
    // A later connection may have another login.
    assert_eq!((fault.code, fault.may_pass), ("sink.vhost", true));
}

#[test]
fn a_login_that_is_refused_is_given_the_rights_of_a_relay_and_no_others() {
    let rights = "'' '^(outbox\\.events|outbox\\.dlx)$' '^outbox\\.dlq$'".to_owned();
    let (vhost, user) = ("v".to_owned(), Some("u".to_owned()));
    let address = AmqpAddress { vhost, user, rights: rights.clone(), ..AmqpAddress::default() };
    let grant = format!("rabbitmqctl set_permissions -p 'v' 'u' {rights}");
    let refused = ConnectionLoss::refused(ACCESS_REFUSED, "ACCESS_REFUSED - Login was refused");
    let login = refused.unreachable(&address).mend;
    for command in ["rabbitmqctl change_password 'u'", "rabbitmqctl add_user 'u'", &grant] {
        assert!(login.contains(command), "{command} is not in {login}");
    }
    // GIVEN a login by certificate
    let login = refused.unreachable(&AmqpAddress::default()).mend;
    for part in ["rabbitmqctl clear_password NAME", "ssl_options.verify = verify_peer"] {
        assert!(login.contains(part), "{part} is not in {login}");
    }
    let missing = ConnectionLoss::refused(NOT_ALLOWED, "NOT_ALLOWED - vhost v not found");
    for mend in [missing.unreachable(&address).mend, address.permit()] {
        assert!(mend.contains(&grant) && !mend.contains("'.*'"), "{mend}");
    }
}

#[test]
fn a_command_holds_each_name_as_one_word_that_the_shell_leaves_alone() {
    let (vhost, user) = ("v$(id)".to_owned(), Some("it's`id`".to_owned()));
    let address = AmqpAddress { vhost, user, ..AmqpAddress::default() };
    assert_eq!(address.admin("list queues"), "rabbitmqadmin --vhost 'v$(id)' list queues");
    let grant = r"rabbitmqctl set_permissions -p 'v$(id)' 'it'\''s`id`' ''";
    assert_eq!(address.grant("''"), grant);
    let permit = address.permit();
    let topics = r"clear_topic_permissions -p 'v$(id)' 'it'\''s`id`'";
    assert!(permit.contains("list_topic_permissions -p 'v$(id)',") && permit.ends_with(topics));
    let refused = |code, text| ConnectionLoss::refused(code, text).unreachable(&address).mend;
    let login = refused(ACCESS_REFUSED, "ACCESS_REFUSED - Login was refused");
    assert!(login.contains(r"change_password 'it'\''s`id`'; "), "{login}");
    let missing = refused(NOT_ALLOWED, "NOT_ALLOWED - vhost not found");
    assert!(missing.starts_with("rabbitmqctl add_vhost 'v$(id)'; "), "{missing}");
}

#[test]
fn each_close_has_its_own_cause() {
    let loss = ConnectionLoss::refused;
    let (large, bad) = (loss(406, "larger than configured"), loss(406, "invalid expiration"));
    assert!(large.is_over_size() && !bad.is_over_size());
    assert!(!loss(541, "a queue is larger than the node can hold").is_over_size());
    assert!(loss(320, "CONNECTION_FORCED").is_forced() && !bad.is_forced());
}

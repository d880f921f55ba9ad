use super::*;
use crate::settings::RabbitLogin;
use walrelay_base::secret::Secret;
use walrelay_base::template::Template;
use walrelay_sink::UNREACHABLE;

#[test]
fn a_stream_that_an_outage_keeps_from_being_read_may_be_readable_later() {
    let (settings, address) = (RabbitSettings::default(), DeadLetterAddress::default());
    let fault = |loss: ConnectionLoss| SetupFaults(&settings).unreadable(&address, &loss);
    // GIVEN a connection that ended, and a node that is stopped
    let losses = [
        ConnectionLoss::of("Connection reset by peer"),
        ConnectionLoss::refused(320, "CONNECTION_FORCED - broker forced connection closure"),
    ];
    for loss in losses {
        let fault = fault(loss);
        assert_eq!((fault.code, fault.may_pass), (UNREACHABLE, true), "{fault}");
    }
    // GIVEN a stream that is not there, or may not be read, and a node that answers with the same error
    // each time
    for (code, text, wanted) in [
        (541, "INTERNAL_ERROR", UNREADABLE),
        (NOT_FOUND, "NOT_FOUND - no queue 'outbox.dlq' in vhost '/'", "sink.dead-letter-missing"),
        (ACCESS_REFUSED, "ACCESS_REFUSED - read access refused", DEAD_LETTER_FORBIDDEN),
        (PRECONDITION_FAILED, "PRECONDITION_FAILED - no local replica", UNREADABLE),
    ] {
        let fault = fault(ConnectionLoss::refused(code, text));
        assert_eq!((fault.code, fault.may_pass), (wanted, false), "{fault}");
    }
}

#[test]
fn no_right_is_offered_for_a_name_that_is_reserved() {
    let settings = RabbitSettings::default();
    let fault = |text: &str| {
        let failed = SetupFaults(&settings).not_made("exchange amq.nope".to_owned());
        failed(ConnectionLoss::refused(ACCESS_REFUSED, text))
    };
    let reserved =
        fault("ACCESS_REFUSED - exchange name 'amq.nope' contains reserved prefix 'amq.*'");
    assert_eq!(reserved.code, "sink.not-made");
    assert!(reserved.mend.contains("reserved for RabbitMQ"), "{reserved}");
    assert!(!reserved.mend.contains("set_permissions"), "{reserved}");
    let forbidden = fault("ACCESS_REFUSED - access to exchange 'x' refused for user 'u'");
    assert_eq!(forbidden.code, "sink.not-permitted");
    assert!(forbidden.mend.contains("set_permissions"), "{forbidden}");
}

#[test]
fn the_url_of_somebody_who_may_make_it_has_the_configured_scheme() {
    for (is_encrypted, scheme) in [(true, "amqps"), (false, "amqp")] {
        let settings = RabbitSettings { is_encrypted, ..RabbitSettings::default() };
        let failed = SetupFaults(&settings).not_made("exchange x".to_owned());
        let fault = failed(ConnectionLoss::refused(ACCESS_REFUSED, "ACCESS_REFUSED - access"));
        let url = format!("WALRELAY_SINK__RABBITMQ__URL={scheme}://ADMIN:PASSWORD@");
        assert!(fault.mend.contains(&url), "{fault}");
    }
    // A certificate that stands for a user leaves no room for another one.
    let settings = RabbitSettings { auth: RabbitAuth::External, ..RabbitSettings::default() };
    let failed = SetupFaults(&settings).not_made("exchange x".to_owned());
    let fault = failed(ConnectionLoss::refused(ACCESS_REFUSED, "ACCESS_REFUSED - access"));
    assert!(fault.mend.contains(": WALRELAY_SINK__RABBITMQ__AUTH=plain WALRELAY_"), "{fault}");
}

#[test]
fn what_dead_letters_need_is_made_by_init_alone_which_makes_the_binding_too() {
    let settings = RabbitSettings::default();
    let faults = SetupFaults(&settings);
    for fault in [
        faults.exchange_missing(Purpose::DeadLetters, "outbox.dlx"),
        faults.queue_missing(Purpose::DeadLetters, "outbox.dlq"),
    ] {
        assert_eq!((fault.code, &*fault.mend), ("sink.dead-letter-missing", "walrelay init"));
    }
}

#[test]
fn a_missing_exchange_for_events_is_told_with_the_bindings_that_it_has_lost() {
    let settings = RabbitSettings::default();
    let fault = SetupFaults(&settings).exchange_missing(Purpose::Events, "outbox.events");
    assert!(fault.mend.starts_with("walrelay init, or: rabbitmqadmin "), "{fault}");
    assert!(fault.mend.ends_with(LOST_BINDINGS), "{fault}");
}

#[test]
fn no_command_is_offered_that_deletes_a_queue_for_events() {
    let queues = [("orders".to_owned(), "#".to_owned())].into();
    let settings = RabbitSettings { queues, ..RabbitSettings::default() };
    let mend = |name| SetupFaults(&settings).not_a_stream(name).mend;
    assert_eq!(mend("orders"), "name another in dead_letter.topic, then: walrelay init");
    assert!(mend("outbox.dlq").contains("delete queue --name 'outbox.dlq'"));
}

#[test]
fn the_commands_hold_configured_names_as_words_that_the_shell_leaves_alone() {
    let settings = RabbitSettings {
        vhost: "v$(id)".to_owned(),
        exchange: Template::literal("it's"),
        exchange_type: "x-`id`".to_owned(),
        login: RabbitLogin::Plain("u$HOME".to_owned(), Secret::new("p")),
        ..RabbitSettings::default()
    };
    let (faults, name) = (SetupFaults(&settings), "q$(id)");
    let address = DeadLetterAddress { topic: name.to_owned(), ..DeadLetterAddress::default() };
    let failed = ConnectionLoss::refused(541, "INTERNAL_ERROR");
    let no_replica = ConnectionLoss::refused(PRECONDITION_FAILED, "no local replica");
    let unusable = [ExchangeDifference::NotDurable];
    let admin = "rabbitmqadmin --vhost 'v$(id)'";
    for (fault, command) in [
        (
            faults.exchange_missing(Purpose::Events, name),
            format!("{admin} declare exchange --name 'q$(id)' --type 'x-`id`' --durable true"),
        ),
        (
            faults.queue_missing(Purpose::Events, name),
            format!("{admin} declare queue --name 'q$(id)' --type "),
        ),
        (
            faults.exchange_unusable(Purpose::Events, name, &unusable).remove(0),
            format!("{admin} delete exchange --name 'q$(id)', then"),
        ),
        (faults.not_a_stream(name), format!("{admin} delete queue --name 'q$(id)', then")),
        (
            faults.publish_forbidden(Purpose::Events, name, None),
            r"rabbitmqctl set_permissions -p 'v$(id)' 'u$HOME' '' '^it'\''s$' ''".to_owned(),
        ),
        (faults.queue_unusable(name, &failed), "list_queues -p 'v$(id)' name".to_owned()),
        (faults.unreadable(&address, &failed), "list_queues -p 'v$(id)' name".to_owned()),
        (
            faults.unreadable(&address, &no_replica),
            "add_replica --vhost 'v$(id)' 'q$(id)' NODE".to_owned(),
        ),
    ] {
        assert!(fault.mend.contains(&command), "{command} is not in {fault}");
    }
}

use super::*;
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

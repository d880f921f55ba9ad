use super::*;

const UNTRUSTED: &str = "ssl://b:9093/bootstrap: SSL handshake failed: certificate verify failed";
const DOWN: &str = "1/1 brokers are down";

fn unreachable(reason: &str) -> Option<SinkReport> {
    Some(SinkReport::Unreachable(reason.to_owned()))
}

fn failed(reachability: &mut Reachability, code: Code, text: &str) -> Option<SinkReport> {
    reachability.failed(code, text, Instant::now())
}

#[test]
fn that_all_brokers_are_down_is_told_with_the_reason() {
    // GIVEN no error before it THEN there is no more to tell
    let mut reachability = Reachability::default();
    assert_eq!(failed(&mut reachability, Code::AllBrokersDown, DOWN), unreachable(DOWN));
    // GIVEN an error of the cluster before it THEN it stays the reason, and has no time in it
    let timed = format!("{UNTRUSTED} (after 3ms in state SSL_HANDSHAKE)");
    assert_eq!(failed(&mut reachability, Code::SSL, &timed), unreachable(UNTRUSTED));
    assert_eq!(failed(&mut reachability, Code::AllBrokersDown, DOWN), unreachable(UNTRUSTED));
    // GIVEN the error of one broker THEN it is told once all are down
    let refused = "b:9093/bootstrap: Connect to ipv4#127.0.0.1:9093 failed: Connection refused";
    assert_eq!(failed(&mut reachability, Code::BrokerTransportFailure, refused), None);
    assert_eq!(failed(&mut reachability, Code::AllBrokersDown, DOWN), unreachable(refused));
    // GIVEN a login that was refused THEN that is told apart
    let wrong =
        "sasl_plaintext://b:9093/bootstrap: SASL authentication error: Authentication failed";
    let login_refused = Some(SinkReport::LoginRefused(wrong.to_owned()));
    assert_eq!(failed(&mut reachability, Code::Authentication, wrong), login_refused);
    assert_eq!(failed(&mut reachability, Code::AllBrokersDown, DOWN), login_refused);
    // WHEN the cluster has answered THEN all of that is over
    assert_eq!(reachability.answered(), Some(SinkReport::Reachable));
    assert_eq!(failed(&mut reachability, Code::AllBrokersDown, DOWN), unreachable(DOWN));
}

#[test]
fn the_brokers_are_named_again_once_when_nothing_is_heard_after_the_loss_of_all() {
    let (mut lost, start) = (LostBrokers::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    lost.reported(Code::BrokerTransportFailure, start);
    assert!(!lost.must_be_named(at(10_000)));
    // Rounds of attempts to connect are reported.
    lost.reported(Code::AllBrokersDown, at(10_000));
    lost.reported(Code::AllBrokersDown, at(12_000));
    assert!(!lost.must_be_named(at(14_000)));
    assert!(lost.must_be_named(at(16_000)) && !lost.must_be_named(at(30_000)));
    lost.reported(Code::AllBrokersDown, at(30_000));
    lost.answered();
    assert!(!lost.must_be_named(at(40_000)));
}

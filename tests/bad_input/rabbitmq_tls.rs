//! TLS that cannot be had, or must not be trusted.

use super::canary::EVERYTHING;
use crate::support::faults::CliFixture;
use crate::support::rabbitmq::{TlsServer, shared, sink};

/// A scene whose sink is a tenant of the broker, over TLS.
fn waiting(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::waiting(name);
    shared().tenant(name, [".*", ".*", ".*"]);
    scene.sink = shared().tls_sink(name);
    scene
}

#[test]
fn the_wrong_port_is_told_in_both_directions() {
    let mut scene = waiting("rabbit_tls_port");
    let (plain, tls) = (shared().node.port(), shared().tls_port);
    scene.sink = sink(&format!("amqps://u:canary@127.0.0.1:{plain}/v"))
        + &format!("ca_file = {:?}\n", shared().file("ca.crt"));
    let words = ["does not speak TLS on this port", "or amqp:// for a port without TLS"];
    scene.env.push(("WALRELAY_LOG".into(), EVERYTHING.into()));
    let ended = scene.assert_refused(5, "sink.no-tls", &words);
    assert!(!ended.all().contains("canary"), "{ended}");
    scene.sink = sink(&format!("amqp://u:canary@127.0.0.1:{tls}/v"));
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&["[sink.unreachable]", "if that is a TLS port, write amqps://"]);
    assert!(!check.all().contains("u:canary"), "{check}");
}

#[test]
fn a_server_that_is_not_to_be_trusted_is_told_with_the_reason() {
    let mut scene = waiting("rabbit_tls_trust");
    let broker = shared();
    let good = scene.sink.clone();
    // Signed by another authority; by one that the system does not know.
    scene.sink = good.replace(&broker.file("ca.crt"), &broker.file("other.crt"));
    let words = ["signed by nobody that is trusted", "sink.rabbitmq.ca_file"];
    scene.assert_refused(5, "sink.tls-untrusted", &words);
    // For another name.
    scene.sink = format!("{good}server_name = \"mq.example\"\n");
    let words = ["not for mq.example", "localhost", "sink.rabbitmq.server_name"];
    scene.assert_refused(5, "sink.tls-untrusted", &words);
    // Expired.
    let late = TlsServer::start(broker, "late");
    scene.sink = good.replace(&format!(":{}/", broker.tls_port), &format!(":{}/", late.port));
    scene.assert_refused(5, "sink.tls-untrusted", &["has expired", "renew"]);
}

#[test]
fn a_client_certificate_that_is_not_trusted_or_names_nobody_is_told() {
    let mut scene = waiting("rabbit_tls_client");
    let (broker, good) = (shared(), scene.sink.clone());
    let with = |leaf: &str| {
        let (cert, key) =
            (broker.file(&format!("{leaf}.crt")), broker.file(&format!("{leaf}.key")));
        format!("{good}cert_file = {cert:?}\nkey_file = {key:?}\n")
    };
    scene.sink = with("stranger");
    let words = ["sink.rabbitmq.cert_file", "ssl_options.cacertfile"];
    scene.assert_refused(5, "sink.tls-refused", &words);
    let login = format!("{name}:{name}@", name = scene.name);
    scene.sink = with("server").replace(&login, "") + "auth = \"external\"\n";
    scene.assert_refused(5, "sink.login", &["ssl_cert_login_from", "rabbitmqctl add_user"]);
}

use super::*;

#[test]
fn an_error_of_a_connection_leads_to_what_mends_it() {
    let verify = "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be verified, verify that ssl.ca.location is correctly configured";
    for (error, mend) in [
        (format!("sasl_ssl://localhost:9093/bootstrap: {verify}"), "correct ssl.ca.location"),
        (format!("ssl://kafka:9093/1: {verify}"), "correct ssl.ca.location"),
        (
            "sasl_ssl://kafka:9093/1: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?".into(),
            "correct security.protocol, ssl.ca.location, ssl.cert",
        ),
        (
            "ssl://kafka:9093/1: SSL handshake failed: unexpected message: client SSL authentication might be required".into(),
            "correct security.protocol, ssl.ca.location, ssl.cert",
        ),
        (
            "sasl_ssl://kafka:9093/1: SASL authentication error: Authentication failed".into(),
            "correct sasl.mechanism",
        ),
        (
            "sasl_ssl://kafka:9093/bootstrap: SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: PLAIN,SCRAM-SHA-512".into(),
            "correct sasl.mechanism in",
        ),
        (
            "kafka:9092/1: Disconnected: verify that security.protocol is correctly configured, broker might require SASL authentication".into(),
            "correct sasl.mechanism",
        ),
        (
            "sasl_ssl://kafka:9093/1: Connect to ipv4#127.0.0.1:9093 failed: Connection refused".into(),
            "start the broker, or correct its advertised.listeners",
        ),
        (
            "ssl://kafka-sasl:9093/1: Failed to resolve 'kafka-sasl:9093': Name or service not known".into(),
            "the cluster itself names this host",
        ),
        (
            "ssl://kafka-sasl:9093/bootstrap: Failed to resolve 'kafka-sasl:9093': Name or service not known".into(),
            "correct the host name",
        ),
        ("kafka-ssl:9092/1: Receive failed: Connection reset by peer".into(), "start the broker"),
        (Code::Resolve.to_string(), "correct the host name"),
        (Code::Authentication.to_string(), "correct sasl.mechanism"),
        (Code::OperationTimedOut.to_string(), "start the broker"),
    ] {
        let told = reaching(&error, "kafka:9092");
        assert!(told.starts_with(mend), "{error}: {told}");
    }
    let told = reaching("no answer", "a:1,b:2");
    assert!(told.ends_with("kafka-broker-api-versions.sh --bootstrap-server a:1,b:2"), "{told}");
}

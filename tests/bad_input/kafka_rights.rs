//! A Kafka that does not let everybody do everything.

use walrelay_harness::{Kafka, free_port};

use crate::support::faults::CliFixture;

const SECRET: &str = "relay-secret-42";

/// A broker with a second listener for the user `relay`, who may do nothing. The first is for the
/// test's own hands.
fn strict() -> (Kafka, u16) {
    let mut kafka = Kafka::start().unwrap();
    kafka.stop().unwrap();
    let port = free_port().unwrap();
    let path = kafka.folder().join("server.properties");
    let mut after = String::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let more = match line.split_once('=') {
            Some(("listeners" | "advertised.listeners", _)) => {
                format!(",STRICT://127.0.0.1:{port}")
            }
            Some(("listener.security.protocol.map", _)) => ",STRICT:SASL_PLAINTEXT".to_owned(),
            _ => String::new(),
        };
        after.push_str(&format!("{line}{more}\n"));
    }
    after.push_str(&format!(
        "sasl.enabled.mechanisms=PLAIN\n\
         listener.name.strict.plain.sasl.jaas.config=\
         org.apache.kafka.common.security.plain.PlainLoginModule required user_relay=\"{SECRET}\";\n\
         authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         super.users=User:ANONYMOUS\n"
    ));
    std::fs::write(&path, after).unwrap();
    kafka.start_again().unwrap();
    (kafka, port)
}

#[test]
fn who_may_not_write_dead_letters_to_kafka_is_told_before_anything_moves() {
    let (_kafka, port) = strict();
    let mut scene = CliFixture::waiting("kafka_dlq_rights");
    let login = |password: &str| {
        format!(
            "[sink.kafka]\nbrokers = \"127.0.0.1:{port}\"\n[sink.kafka.properties]\n\
             \"security.protocol\" = \"SASL_PLAINTEXT\"\n\"sasl.mechanism\" = \"PLAIN\"\n\
             \"sasl.username\" = \"relay\"\n\"sasl.password\" = {{ env = \"{password}\" }}\n"
        )
    };
    scene.env.push(("RELAY_PASSWORD".into(), SECRET.into()));
    scene.env.push(("WRONG_PASSWORD".into(), "wrong-secret-42".into()));
    // GIVEN a login that the broker does not know
    scene.sink = login("WRONG_PASSWORD");
    let words = ["correct sasl.mechanism, sasl.username and sasl.password"];
    let ended = scene.assert_refused(5, "sink.unreachable", &words);
    assert!(!ended.all().contains("secret-42"), "{ended}");
    // GIVEN one that may do nothing
    scene.sink = login("RELAY_PASSWORD");
    let words = [
        "this login may not use the dead-letter topic outbox.dlq",
        "--operation Write --operation Read --operation Describe --topic outbox.dlq",
    ];
    scene.assert_refused(5, "sink.dead-letter-forbidden", &words);
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&["✗ this login may not use the dead-letter topic outbox.dlq"]);
    // AND the commands say the same, and show nothing of the password
    let list = scene.walrelay(&["dlq", "list"]);
    list.assert_fault(5, "sink.dead-letter-forbidden", &["--topic outbox.dlq"]);
    assert!(!list.all().contains(SECRET) && !check.all().contains(SECRET), "{list}{check}");
}

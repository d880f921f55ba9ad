use super::*;

const BROKER: &str =
    "[sink.kafka]\nbrokers = \"kafka:9092\"\n[dead_letter]\ntopic = \"orders.dlq\"\n";

fn broker_of(text: &str) -> Result<BrokerConfig, Vec<Fault>> {
    load_broker(&request(&TempFile::new(text), &[], &[]))
}

#[test]
fn a_command_that_uses_the_broker_alone_needs_its_section_only() {
    // GIVEN no database, or one whose secret is elsewhere
    let elsewhere =
        format!("[source]\nurl = {{ env = \"NOT_HERE\" }}\nslot = \"Not One\"\n{BROKER}");
    for text in [BROKER, &elsewhere] {
        // WHEN the broker's part is read THEN it is complete
        let config = broker_of(text).unwrap();
        assert_eq!(config.sink.kind().name, "kafka");
        assert_eq!(config.dead_letter.address.topic, "orders.dlq");
    }
}

#[test]
fn what_is_wrong_with_the_broker_is_reported_alone() {
    let text = "[delivery]\nbackoff_base = \"x\"\n[source]\nslot = \"Not One\"\n[log]\nlevel = \"warning\"\n";
    let faults = broker_of(text).unwrap_err();
    let whats = faults.iter().map(|fault| fault.what.split(": ").next().unwrap());
    let whats: BTreeSet<&str> = whats.collect();
    assert_eq!(whats, ["delivery.backoff_base", "log.level", "sink.kafka.brokers"].into());
    // A key that does not exist is a mistake wherever it stands.
    let faults = broker_of(&format!("[source]\nslto = \"s\"\n{BROKER}")).unwrap_err();
    assert_eq!(faults[0].code, "config.unknown-key");
}

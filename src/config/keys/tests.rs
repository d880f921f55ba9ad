use super::*;
use crate::config::kind::{Raw, read};

#[test]
fn every_default_is_a_value_of_its_kind() {
    for key in all() {
        if let Absent::Value(text) = key.absent {
            let value = read(key.kind, &Raw::Word(text.into()), &|_| None);
            assert!(value.is_ok(), "{} = {text}", key.path);
        }
    }
}

#[test]
fn a_variable_is_the_path_in_capitals() {
    let name = |path: &str| all().iter().find(|key| key.path == path).unwrap().variable();
    assert_eq!(name("sink.kafka.brokers"), "WALRELAY_SINK__KAFKA__BROKERS");
    assert_eq!(name("source.outbox[].table"), "WALRELAY_SOURCE__OUTBOX__N__TABLE");
}

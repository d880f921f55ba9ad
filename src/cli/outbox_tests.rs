use super::*;
use crate::base::template::Template;

#[test]
fn the_next_steps_of_a_handover_name_only_the_keys_that_are_not_set() {
    let (mut outbox, mut polling) = (OutboxTable::default(), PollingSettings::default());
    outbox.columns.key = POLLED_KEY.to_owned();
    outbox.route.topic = Template::parse("${event_key}").unwrap();
    polling.columns.order = "seq".to_owned();
    let told = next_steps(&outbox, &polling);
    for words in [
        "remove the sections [source.polling...]",
        "columns.order = \"seq\"",
        "write columns.key = \"event_key\" and route.topic = \"${event_key}\"",
    ] {
        assert!(told.contains(words), "{told}");
    }
    outbox.columns.key = "customer".to_owned();
    outbox.route.topic = Template::literal("orders");
    assert!(!next_steps(&outbox, &polling).contains("write "));
}

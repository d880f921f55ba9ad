//! An event that is given up while its dead letter cannot be written waits for that.

use walrelay_harness::BrokerKind;

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, metric, on_both_brokers, status, until};

on_both_brokers!(poison_waits_for_a_dead_letter_topic_that_is_missing, rabbitmq in soak);

fn poison_waits_for_a_dead_letter_topic_that_is_missing(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "letters_away", "attempts_max = 2\n", "");
    // GIVEN a relay whose dead-letter topic has gone
    let name = case.site.name.clone();
    let reader = case.site.reader();
    let mut relay = case.relay();
    case.site.remove_dead_letters();
    // WHEN an event cannot be published
    let (poison, before_its_end) = case.insert_before(&case.lost(), "k0", 0);
    case.insert(&name, 1..6, 1, 500);
    until("attempts to write the letter", LIMIT, || {
        metric(&relay, "outbox_dlq_publish_failed_total").filter(|failed| *failed >= 3.0)
    });
    // THEN the other keys flow, and the slot is held before it
    reader.wait_until(500, LIMIT);
    assert!(case.site.confirmed().unwrap() <= before_its_end);
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"dead_lettered\"}"), Some(0.0));
    assert_eq!(status(&relay)["reason"]["code"], "dead_letter_unwritten");
    // WHEN the topic is back THEN it flows
    case.must(&["init"]);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), [poison]);
    case.judge(&name, &held(reader), &[]).assert_exact(0);
}

//! An event for a destination that is missing holds up its key, and nothing else.

use std::time::Instant;

use walrelay_harness::BrokerKind;

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, metric, on_both_brokers, wait_until};

/// Without end; and the others are many times as many as may be in flight.
const ATTEMPTS: &str = "attempts_max = 1000\nwindow_events_max = 300\n";

on_both_brokers!(an_event_without_a_destination_holds_up_its_key_alone);

fn an_event_without_a_destination_holds_up_its_key_alone(kind: BrokerKind) {
    // GIVEN attempts without end, and a small window
    let mut case = DeadLetterFixture::on(kind, "missing", ATTEMPTS, "");
    let reader = case.site.reader();
    let mut relay = case.relay();
    // WHEN an event of a key has no destination, and later ones of it and of others have one
    let began = Instant::now();
    let lost = case.insert_one(&case.lost(), "held", 1);
    case.insert_one(&case.site.name, "held", 2);
    case.insert(&case.site.name, 0..20, 0, 1_000);
    // THEN the others arrive while it is tried
    wait_until("the others to arrive", || reader.count() >= 1_000);
    println!("{kind:?}: the others within {:?}", began.elapsed());
    assert_eq!(case.open(), [] as [String; 0]);
    wait_until("a second attempt", || metric(&relay, "outbox_retries_total") >= Some(1.0));
    println!("{kind:?}: a second attempt within {:?}", began.elapsed());
    assert_eq!(reader.count(), 1_000);
    // WHEN its attempts are used up THEN it is a dead letter, and its key goes on
    relay.kill9().unwrap();
    case.reconfigure("attempts_max = 1000", "attempts_max = 5");
    let began = Instant::now();
    let mut relay = case.relay();
    case.site.wait_confirmed(&mut relay, LIMIT);
    println!("{kind:?}: a dead letter within {:?}", began.elapsed());
    assert_eq!(case.open(), [lost]);
    let verdict = case.judge(&case.site.name, &held(reader), &[]);
    verdict.assert_exact(1_000);
}

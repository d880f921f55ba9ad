//! Where no dead letter is to be written.

use walrelay_harness::BrokerKind;

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, on_both_brokers};

const DELIVERY: &str = "on_dead_letter = \"continue\"\nattempts_max = 3\n";

on_both_brokers!(the_relay_halts_before_an_event_that_has_no_route, rabbitmq in soak);

fn the_relay_halts_before_an_event_that_has_no_route(kind: BrokerKind) {
    let mut case = DeadLetterFixture::on(kind, "halt", DELIVERY, "");
    // GIVEN a dead-letter topic that is not to be used
    case.reconfigure("\"continue\"", "\"halt\"");
    let (name, lost) = (case.site.name.clone(), case.lost());
    let reader = case.site.reader();
    let mut relay = case.relay();
    case.insert_one(&name, "k", 1);
    case.site.wait_confirmed(&mut relay, LIMIT);
    // WHEN an event cannot be published THEN the relay says which, and ends; again and again
    let (poison, before_its_end) = case.insert_before(&lost, "k", 2);
    case.insert_one(&lost, "k", 3);
    for start in 1..=2 {
        assert_eq!(relay.wait_exit(LIMIT).unwrap(), 6, "start {start}\n{}", relay.tail(20));
        let said = relay.tail(5);
        for word in
            ["\"code\":\"event.refused\"", &poison, &lost, "after 3 attempts", "log position"]
        {
            assert!(said.contains(word), "start {start}: no {word}\n{said}");
        }
        // THEN the slot is held before it, and it is no dead letter
        assert!(case.site.confirmed().unwrap() <= before_its_end);
        assert_eq!(case.records_read(), 0);
        if start == 2 {
            case.site.open_route(&lost);
        }
        relay.restart().unwrap();
    }
    // WHEN the route is made THEN all arrive in order, and what was in front has come once
    case.site.wait_confirmed(&mut relay, LIMIT);
    let found = case.site.reader_of(&lost);
    case.judge(&lost, &held(found), &[]).assert_exact(0);
    case.judge(&name, &held(reader), &[]).assert_exact(0);
    assert_eq!(case.records_read(), 0);
}

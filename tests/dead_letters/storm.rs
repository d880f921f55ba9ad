//! When everything fails, something else is wrong than the events.

use super::fixture::{DeadLetterFixture, on_kafka, on_rabbitmq};
use crate::support::{LIMIT, metric};

const BURST: usize = 7;
const DELIVERY: &str = "attempts_max = 1\n";
const DEAD_LETTER: &str = "burst_max = 7\nburst_window = \"1h\"\n";

#[test]
fn a_poison_storm_opens_the_breaker_after_exactly_the_burst() {
    storm(on_kafka("storm_kafka", DELIVERY, DEAD_LETTER));
}

#[test]
fn a_poison_storm_opens_the_breaker_after_exactly_the_burst_in_rabbitmq() {
    storm(on_rabbitmq("storm_rabbitmq", DELIVERY, DEAD_LETTER));
}

fn storm(mut case: DeadLetterFixture) {
    // GIVEN nothing but poison
    case.insert(&case.lost(), 0..50, 0, 50);
    let mut relay = case.start();
    // WHEN it is relayed THEN the relay stops, and says so
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 6, "{}", relay.tail(20));
    assert!(relay.said("\"code\":\"dead-letter.breaker-open\""), "{}", relay.tail(20));
    assert_eq!(case.open().len(), BURST);
    // WHEN a supervisor starts it again THEN it does not drain the outbox burst by burst
    relay.restart().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 6, "{}", relay.tail(20));
    assert_eq!(case.open().len(), BURST);
    // WHEN somebody decides that all of it is poison THEN nothing was lost
    case.reconfigure("burst_max = 7", "burst_max = 1000");
    let mut relay = case.relay();
    case.site.wait_confirmed(&mut relay, LIMIT);
    let mut open = case.open();
    assert_eq!(open.len(), 50);
    open.sort();
    let all = case.site.value("select string_agg(id::text, ' ' order by id::text) from outbox");
    assert_eq!(open.join(" "), all);
    // THEN each has used up its attempts once more: the slot was held before the first of them
    assert_eq!(metric(&relay, "outbox_retry_exhaustions_total"), Some(50.0));
}

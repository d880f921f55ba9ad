//! When everything fails, something else is wrong than the events.

use walrelay_harness::BrokerKind;

use super::fixture::DeadLetterFixture;
use crate::support::{LIMIT, metric, on_both_brokers};

const BURST: usize = 7;
const DELIVERY: &str = "attempts_max = 1\n";
const DEAD_LETTER: &str = "burst_max = 7\nburst_window = \"1h\"\n";

on_both_brokers!(a_poison_storm_opens_the_breaker_after_exactly_the_burst);

fn a_poison_storm_opens_the_breaker_after_exactly_the_burst(kind: BrokerKind) {
    let mut case = DeadLetterFixture::on(kind, "storm", DELIVERY, DEAD_LETTER);
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
    // THEN what was dead-lettered before is not tried again
    let left = (50 - BURST) as f64;
    assert_eq!(metric(&relay, "outbox_retry_exhaustions_total"), Some(left));
}

//! When everything fails, something else is wrong than the events.

use std::time::{Duration, Instant};

use walrelay_harness::BrokerKind;

use super::fixture::DeadLetterFixture;
use crate::support::{LIMIT, metric, on_both_brokers};

const BURST: usize = 7;
const DELIVERY: &str = "attempts_max = 1\n";
/// Restarts take longer, so the dead letters of the process before are no longer in the window.
const WINDOW: Duration = Duration::from_secs(1);
const DEAD_LETTER: &str = "burst_max = 7\nburst_window = \"1s\"\n";

on_both_brokers!(a_poison_storm_opens_the_breaker_after_exactly_the_burst, rabbitmq in soak);

fn a_poison_storm_opens_the_breaker_after_exactly_the_burst(kind: BrokerKind) {
    let mut case = DeadLetterFixture::on(kind, "storm", DELIVERY, DEAD_LETTER);
    // GIVEN nothing but poison
    case.insert(&case.lost(), 0..50, 0, 50);
    let mut relay = case.start();
    // WHEN it is relayed THEN the relay stops, and says so
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 6, "{}", relay.tail(20));
    assert!(relay.said("\"code\":\"dead-letter.breaker-open\""), "{}", relay.tail(20));
    assert_eq!(case.open().len(), BURST);
    // WHEN a supervisor starts it again and again, beyond the window THEN not one more is written,
    // and it says the same
    let began = Instant::now();
    for restarts in 1.. {
        relay.restart().unwrap();
        assert_eq!(relay.wait_exit(LIMIT).unwrap(), 6, "{}", relay.tail(20));
        assert!(relay.said("\"code\":\"dead-letter.breaker-open\""), "{}", relay.tail(20));
        if restarts >= 6 && began.elapsed() > 3 * WINDOW {
            break;
        }
    }
    assert_eq!(case.open().len(), BURST);
    // WHEN somebody decides that all of it is poison, and acknowledges it THEN nothing was lost
    case.reconfigure("burst_max = 7", "burst_max = 1000");
    let resumed = case.must(&["resume", "--yes", "--reason", "all of it is poison"]);
    resumed.assert_says(&["dead-letter.breaker-open", "since"]);
    case.walrelay(&["resume", "--yes"]).assert_fault(1, "resume.nothing", &[]);
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

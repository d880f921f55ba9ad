//! The way back: list, mend, replay.

use super::case::{Case, held, on_kafka, on_rabbitmq};
use crate::support::{LIMIT, metric, until};

const DELIVERY: &str = "attempts_max = 1\n";
const DEAD_LETTER: &str = "burst_max = 100000\n";

#[test]
fn what_was_mended_is_replayed_in_key_order() {
    there_and_back(&on_kafka("back_kafka", DELIVERY, DEAD_LETTER));
}

#[test]
fn what_was_mended_is_replayed_in_key_order_in_rabbitmq() {
    there_and_back(&on_rabbitmq("back_rabbitmq", DELIVERY, DEAD_LETTER));
}

fn there_and_back(case: &Case) {
    // GIVEN letters of some keys
    let lost = case.lost();
    let mut relay = case.relay();
    case.insert(&lost, 0..7, 0, 300);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open().len(), 300);
    // WHEN they are replayed against a route that is broken still THEN that stops at once
    let aborted = case.walrelay(&["dlq", "replay", "--all"]);
    assert_eq!(aborted.code, 5, "{aborted}");
    assert_eq!(case.open().len(), 300, "nothing is resolved");
    // WHEN one would only look THEN nothing moves
    case.must(&["dlq", "replay", "--all", "--dry-run"]);
    assert_eq!(case.open().len(), 300);
    // WHEN the route is made THEN a part of them is delivered, and then the rest
    case.site.open_route(&lost);
    case.must(&["dlq", "replay", "--key", "k3"]);
    assert_eq!(case.list(&["--key", "k3"]).len(), 0);
    case.must(&["dlq", "replay", "--all"]);
    assert_eq!(case.open(), [] as [String; 0]);
    let records = held(case.site.reader_of(&lost));
    case.judge(&lost, &records, &[]).assert_exact(0);
    // THEN they are known as replayed, and nothing is left to be replayed
    let replayed = case.list(&["--state", "replayed"]);
    assert_eq!(replayed.len(), 300);
    let before = case.records_read();
    case.must(&["dlq", "replay", "--all"]);
    assert_eq!(case.records_read(), before);
    until("the depth to fall", LIMIT, || {
        (metric(&relay, "outbox_dlq_depth") == Some(0.0)).then_some(())
    });
}

//! The way back: list, mend, replay.

use walrelay_harness::BrokerKind;

use super::fixture::{DeadLetterFixture, held, ids};
use crate::support::{LIMIT, metric, on_both_brokers, wait_until};

const DELIVERY: &str = "attempts_max = 1\n";
const DEAD_LETTER: &str = "burst_max = 100000\n";

on_both_brokers!(what_was_mended_is_replayed_in_key_order, rabbitmq in soak);

fn what_was_mended_is_replayed_in_key_order(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "back", DELIVERY, DEAD_LETTER);
    // GIVEN letters of some keys
    let lost = case.lost();
    let mut relay = case.relay();
    case.insert(&lost, 0..7, 0, 300);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open().len(), 300);
    assert_eq!(metric(&relay, "outbox_retry_exhaustions_total"), Some(300.0));
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
    wait_until("the depth to fall", || metric(&relay, "outbox_dlq_depth") == Some(0.0));
}

/// The first are refused by a small limit, and pass a large one.
const SMALL_BYTES: u64 = 2_000;
const LARGE_BYTES: u64 = 400_000;
const LETTERS: u64 = 8;

on_both_brokers!(a_replay_stops_when_its_destination_refuses_events_again, rabbitmq in soak);

fn a_replay_stops_when_its_destination_refuses_events_again(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "comes_back", DELIVERY, DEAD_LETTER);
    // GIVEN letters of events that were too large for their route, which takes them now
    let lost = case.lost();
    case.site.open_route(&lost);
    case.site.limit_route(&lost, SMALL_BYTES / 2);
    let mut relay = case.relay();
    case.insert_large(&lost, 0, LETTERS, SMALL_BYTES);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let letters = case.open();
    assert_eq!(letters.len() as u64, LETTERS);
    let class = case.list(&[])[0]["error_class"].as_str().unwrap().to_owned();
    case.site.limit_route(&lost, LARGE_BYTES);
    // WHEN another event fails as they did while they are replayed
    let mut replay = case.spawn(&["dlq", "replay", "--error-class", &class, "--rate", "10/min"]);
    replay.wait_until("the first resolution", || !case.list(&["--state", "replayed"]).is_empty());
    case.insert_large(&lost, LETTERS, 1, 2 * LARGE_BYTES);
    // THEN the replay stops by itself, and says so
    let ended = replay.wait_within(LIMIT);
    let words = [&lost, &class, "events fail as before", "then replay the rest"];
    ended.assert_fault(5, "dead-letter.comes-back", &words);
    case.site.wait_confirmed(&mut relay, LIMIT);
    // THEN what it has delivered is resolved, and the rest is open, with the new one behind it
    let replayed = ids(&case.list(&["--state", "replayed"]));
    let open = case.open();
    println!("{lost}: {} were replayed", replayed.len());
    assert_eq!(replayed, letters[..replayed.len()]);
    assert_eq!(open[..open.len() - 1], letters[replayed.len()..]);
    let last =
        case.site.value("select id from outbox order by (payload->>'seq')::int desc limit 1");
    assert_eq!(open.last(), Some(&last));
    assert_eq!(case.list(&["--error-class", &class]).len(), open.len());
    case.judge(&lost, &held(case.site.reader_of(&lost)), &open).assert_exact(0);
}

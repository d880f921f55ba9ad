//! `kill -9` at each step between a failure and its resolution.

use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayProcess;

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, metric, on_both_brokers, wait_until};

const POISON: u64 = 150;
/// Most events of a replay that are delivered and not yet resolved.
const REPLAY_WINDOW: u64 = 64;
const DELIVERY: &str = "attempts_max = 3\nbackoff_cap = \"200ms\"\nretry_budget_percent = 1000\n";
const DEAD_LETTER: &str = "burst_max = 100000\n";

on_both_brokers!(kills_between_failure_and_resolution_lose_nothing, rabbitmq in soak);

fn count(relay: &RelayProcess, name: &str) -> f64 {
    metric(relay, name).unwrap_or_default()
}

fn kill_at(relay: &mut RelayProcess, name: &str, at_least: f64) {
    wait_until(name, || count(relay, name) >= at_least);
    relay.restart().unwrap();
}

fn kills_between_failure_and_resolution_lose_nothing(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "kills", DELIVERY, DEAD_LETTER);
    let (name, lost) = (case.site.name.clone(), case.lost());
    let reader = case.site.reader();
    // GIVEN poison between good events, and a relay whose dead-letter topic has gone
    let mut relay = case.relay();
    case.site.remove_dead_letters();
    case.insert(&name, 0..5, 0, 200);
    case.insert(&lost, 0..5, 200, POISON);
    case.insert(&name, 0..5, 200 + POISON, 200);
    // WHEN it is killed while a letter cannot be written THEN the next one says what is missing
    kill_at(&mut relay, "outbox_dlq_publish_failed_total", 1.0);
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 5, "{}", relay.tail(20));
    case.must(&["init"]);
    relay.restart().unwrap();
    // WHEN it is killed after a failure, while retries wait, and with some letters written
    kill_at(&mut relay, "outbox_retries_total", 1.0);
    let mut kills = 2;
    for written in [1, 20, 60] {
        if (case.open().len() as u64) < POISON {
            // A kill may come after the last of them: then there is nothing to wait for.
            wait_until("letters", || {
                let told = count(&relay, "outbox_dlq_published_total") >= f64::from(written);
                told || case.open().len() as u64 == POISON
            });
            relay.restart().unwrap();
            kills += 1;
        }
    }
    case.site.wait_confirmed(&mut relay, LIMIT);
    // THEN each is a dead letter once, however often it stands in the log
    assert_eq!(case.open().len() as u64, POISON);
    let written = case.records_read();
    println!("{name}: {written} records for {POISON} dead letters after {kills} kills");
    assert!(written <= POISON * (kills + 1), "a kill repeats what was in flight, once");
    // WHEN the route is mended and the replay is killed THEN nothing is lost
    case.site.open_route(&lost);
    let found = case.site.reader_of(&lost);
    let mut replay = case.spawn(&["dlq", "replay", "--all", "--rate", "10/s"]);
    replay.wait_until("the first resolutions", || !case.list(&["--state", "replayed"]).is_empty());
    drop(replay);
    assert!(!case.open().is_empty(), "it was killed before its end");
    // THEN the next replay finishes it: what was in flight may be there twice
    case.must(&["dlq", "replay", "--all"]);
    assert_eq!(case.open(), [] as [String; 0]);
    let verdict = case.judge(&lost, &held(found), &[]);
    println!("{name}: {verdict}");
    verdict.assert_exact(REPLAY_WINDOW);
    let others = case.judge(&name, &held(reader), &[]);
    others.assert_exact(400 * kills);
    assert_eq!(case.list(&["--state", "replayed"]).len() as u64, POISON);
}

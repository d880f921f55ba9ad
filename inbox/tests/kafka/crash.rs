//! `kill -9` of a consumer under load. It runs in a process of its own: this binary again, with the
//! ignored test [`child`].

use std::process::{Child, Command, Stdio};

use walrelay_harness::kit::{Rng, volume};

use super::fixture::{Fixture, PARTITIONS, settings, source};
use crate::support::{Calls, Script, log, runtime, until};

const SERVICE: &str = "WALRELAY_INBOX_TEST_SERVICE";
const DATABASE: &str = "WALRELAY_INBOX_TEST_DATABASE";
const BROKERS: &str = "WALRELAY_INBOX_TEST_BROKERS";
const KEYS: usize = 12;

#[test]
#[ignore = "the consumer of the test below, started by it"]
fn child() {
    let Some(service) = std::env::var(SERVICE).ok() else { return };
    let (url, brokers) = (std::env::var(DATABASE).unwrap(), std::env::var(BROKERS).unwrap());
    log();
    let inbox = walrelay_inbox::Inbox::new(
        settings(&service, &url),
        source(&brokers, &service).property("session.timeout.ms", "1000"),
    );
    let script = Script(Calls::new());
    // Ends with the starter, too.
    let gone = async {
        let mut nothing = [0];
        let read = tokio::task::spawn_blocking(move || {
            std::io::Read::read(&mut std::io::stdin(), &mut nothing)
        });
        drop(read.await);
    };
    runtime(2).block_on(inbox.run(script, gone)).unwrap();
}

fn start_child(fixture: &Fixture) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kafka::crash::child", "--ignored", "--nocapture"])
        .env(SERVICE, &fixture.name)
        .env(DATABASE, &fixture.database.url)
        .env(BROKERS, &fixture.brokers)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn what_a_killed_consumer_has_not_committed_is_repeated_harmlessly() {
    // GIVEN a load of which a part fails once or twice, or for good
    let messages = volume(400, 4_000);
    let fixture = Fixture::new("crash");
    for number in 0..messages {
        let value = match number % 40 {
            3 => "fail 1",
            17 => "fail 2",
            29 => "permanent",
            _ => "slow 3",
        };
        fixture.send(&format!("k{}", number % KEYS), &format!("{number:05}"), value);
    }
    let permanent = (0..messages).filter(|number| number % 40 == 29).count();
    let wanted = messages - permanent;
    // WHEN the consumer is killed again and again while it works
    let kills = volume(4, 20);
    let mut rng = Rng::new(7);
    for kill in 1..=kills {
        let mut child = start_child(&fixture);
        let share = wanted * kill / (kills + 1);
        fixture.database.wait_handled(share.saturating_sub(rng.below(20) as usize));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let child = start_child(&fixture);
    fixture.database.wait_handled(wanted);
    fixture.wait_dead_letters(permanent);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    fixture.wait_committed(messages as i64);
    end(child);
    // THEN each message is handled once or a dead letter, and each key is in order
    let handled = fixture.database.handled();
    assert_eq!(handled.len(), wanted);
    let distinct = fixture.database.number("SELECT count(DISTINCT message_id) FROM handled");
    assert_eq!(distinct, wanted as i64);
    for key in 0..KEYS {
        let of_key = fixture.database.handled_of(&format!("k{key}"));
        assert!(of_key.is_sorted(), "{key}: {of_key:?}");
    }
    let mut dead: Vec<String> =
        fixture.dead_letters().iter().map(|letter| letter.header("id").to_owned()).collect();
    dead.sort();
    dead.dedup();
    assert_eq!(dead.len(), permanent);
    assert!(PARTITIONS > 1, "there is something to rebalance");
}

/// Closing its input ends it gracefully.
fn end(mut child: Child) {
    drop(child.stdin.take());
    let ended = until("the child ends", || child.try_wait().unwrap());
    assert!(ended.success());
}

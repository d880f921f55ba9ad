//! Postgres or Kafka is away for a while.

use std::time::Duration;

use walrelay_harness::proxy::Proxy;
use walrelay_harness::{Postgres, PostgresOptions, free_port};

use super::fixture::{Fixture, shared_kafka, source, start_kafka};
use crate::support::{Calls, Database, LIMIT, Script, runtime, settings, shared_postgres, until};

#[test]
fn an_outage_of_postgres_counts_for_no_message() {
    // GIVEN a handler that runs, and messages behind it
    let options =
        PostgresOptions { port: Some(free_port().unwrap()), ..PostgresOptions::default() };
    let mut postgres = Postgres::start(options).unwrap();
    let mut fixture = Fixture::bare("pgaway", &postgres, &shared_kafka().bootstrap());
    fixture.init();
    fixture.send("a", "a-01", "gate");
    (2..=10).for_each(|number| fixture.send("a", &format!("a-{number:02}"), "ok"));
    let inbox = fixture.start();
    until("the handler runs", || (inbox.calls.all().len() == 1).then_some(()));
    // WHEN Postgres crashes, more messages come, and it is back later
    postgres.kill9().unwrap();
    (1..=5).for_each(|number| fixture.send("b", &format!("b-{number}"), "ok"));
    inbox.calls.open_gate();
    postgres.start_again().unwrap();
    fixture.database = Database::open(&fixture.database.url);
    // THEN all is handled once, in order, and nothing went through a retry level
    fixture.database.wait_handled(15);
    assert!(fixture.database.handled_of("a").is_sorted());
    assert_eq!(fixture.database.handled().len(), 15);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    // WHEN it is stopped while Postgres is away
    postgres.stop_fast(LIMIT).unwrap();
    fixture.send("a", "a-11", "ok");
    // THEN the inbox stops soon, and the message comes again
    inbox.stop_soon();
    postgres.start_again().unwrap();
    fixture.database = Database::open(&fixture.database.url);
    let inbox = fixture.start();
    fixture.database.wait_handled(16);
    inbox.stop();
}

#[test]
fn a_message_whose_last_commit_was_not_answered_is_no_dead_letter() {
    // GIVEN a consumer without retry levels, and a handler that has ended its session twice
    let network = Proxy::start(shared_postgres().port()).unwrap();
    let fixture = Fixture::new("unanswered");
    let direct = format!(":{}", shared_postgres().port());
    let url = fixture.database.url.replace(&direct, &format!(":{}", network.port));
    fixture.send("a", "a-1", "end 2");
    let inbox = fixture.start_with(settings(&fixture.name, &url).levels([]), &Calls::new());
    until("the last attempt", || (inbox.calls.at_gate() == 1).then_some(()));
    // WHEN it commits, and the connection breaks before the answer
    network.lose_answers();
    inbox.calls.open_gate();
    fixture.database.wait_handled(1);
    network.cut();
    // THEN the message is known to be processed
    fixture.send("a", "a-2", "ok");
    fixture.database.wait_handled(2);
    inbox.stop();
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2"]);
    assert_eq!(fixture.dead_letters().len(), 0);
}

#[test]
fn an_inbox_that_looks_for_postgres_stops_at_once() {
    // GIVEN a server that accepts connections and says nothing
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://x@{}/x", listener.local_addr().unwrap());
    let brokers = shared_kafka().bootstrap();
    let inbox = walrelay_inbox::Inbox::new(settings("silent", &url), source(&brokers, "silent"));
    // WHEN a stop is requested at the start THEN it is not looked for
    let began = std::time::Instant::now();
    let script = Script(Calls::new());
    runtime(1).block_on(inbox.run(script, std::future::ready(()))).unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn an_outage_of_kafka_is_waited_for_with_what_is_to_be_copied() {
    // GIVEN a message whose handler runs while Kafka is killed
    let mut kafka = start_kafka();
    let fixture = Fixture::bare("kafkaaway", shared_postgres(), &kafka.bootstrap());
    fixture.init();
    fixture.send("a", "a-1", "fail 1");
    fixture.send("a", "a-2", "gate");
    fixture.send("b", "b-1", "slow 400");
    fixture.broker.flush();
    let inbox = fixture.start();
    until("a handler runs", || (!inbox.calls.of("b-1").is_empty()).then_some(()));
    kafka.kill9().unwrap();
    // WHEN it is back
    kafka.start_again().unwrap();
    fixture.send("b", "b-2", "ok");
    inbox.calls.open_gate();
    // THEN all is handled, in order
    fixture.database.wait_handled(4);
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2"]);
    assert_eq!(fixture.database.handled_of("b"), ["b-1", "b-2"]);
    inbox.stop();
    assert_eq!(fixture.database.handled().len(), 4);
}

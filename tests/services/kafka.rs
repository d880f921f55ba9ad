//! Kafka: starts, answers, keeps its topics, freezes, ends.

use std::time::Instant;

use walrelay_harness::Kafka;
use walrelay_harness::consumer::{create_topic, end_offsets};

use super::LIMIT;
use crate::support::until;

/// Waits for the topic: for a moment after a start or a thaw its partitions may have no leader.
#[track_caller]
fn wait_for(kafka: &Kafka, topic: &str) {
    until("the topic", LIMIT, || has(kafka, topic).then_some(()));
}

/// Whether the topic is there; none is made by asking.
fn has(kafka: &Kafka, topic: &str) -> bool {
    end_offsets(&kafka.bootstrap(), topic).is_ok_and(|ends| !ends.is_empty())
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn topics_survive_a_kill_and_a_freeze() {
    // GIVEN a broker with one topic
    let start = Instant::now();
    let mut kafka = Kafka::start().unwrap_or_else(|error| panic!("{error}"));
    println!("Kafka ready in {} ms", start.elapsed().as_millis());
    create_topic(&kafka.bootstrap(), "kept", 1, &[]).unwrap();
    let (port, first_pid) = (kafka.port(), kafka.pid());

    // WHEN it is killed and started again THEN the topic is there, on the same port
    kafka.kill9().unwrap();
    assert!(!kafka.answers());
    let start = Instant::now();
    kafka.start_again().unwrap();
    println!("after kill9: ready again in {} ms", start.elapsed().as_millis());
    wait_for(&kafka, "kept");
    assert_eq!(kafka.port(), port);
    assert_ne!(kafka.pid(), first_pid);
    // and topics are not made by asking for them
    assert!(!has(&kafka, "other"));

    // WHEN it is frozen THEN it is silent, and thawed it answers
    kafka.freeze().unwrap();
    assert!(!kafka.answers());
    kafka.thaw().unwrap();
    wait_for(&kafka, "kept");

    // WHEN it is stopped in order THEN it comes back all the same
    let start = Instant::now();
    kafka.stop().unwrap();
    println!("orderly stop took {} ms", start.elapsed().as_millis());
    kafka.start_again().unwrap();
    wait_for(&kafka, "kept");

    // WHEN it is dropped THEN its folder goes
    let folder = kafka.folder().to_owned();
    drop(kafka);
    assert!(!folder.exists());
}

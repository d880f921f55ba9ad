//! Kafka: starts, answers, keeps its topics, freezes, ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use walrelay_harness::Kafka;

const METADATA_V1: (i16, i16) = (3, 1);
const CREATE_TOPICS_V2: (i16, i16) = (19, 2);
const UNKNOWN_TOPIC: i16 = 3;

/// One request by hand; what follows the correlation id.
fn request(kafka: &Kafka, (api, version): (i16, i16), body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(kafka.bootstrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut message = [api.to_be_bytes(), version.to_be_bytes()].concat();
    // Correlation id 0, no client id.
    message.extend([0, 0, 0, 0, 0xff, 0xff]);
    message.extend(body);
    stream.write_all(&(message.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(&message).unwrap();
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut answer).unwrap();
    answer.split_off(4)
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

fn create_topic(kafka: &Kafka, name: &str) {
    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend(string(name));
    // One partition, one replica, no assignments, no settings, ten seconds, for real.
    body.extend([0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x27, 0x10, 0]);
    let answer = request(kafka, CREATE_TOPICS_V2, &body);
    // Throttle time, one topic, its name, then its error code.
    let at = 4 + 4 + 2 + name.len();
    assert_eq!(i16::from_be_bytes([answer[at], answer[at + 1]]), 0);
}

/// The error code of a topic's metadata.
fn topic_error(kafka: &Kafka, name: &str) -> i16 {
    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend(string(name));
    let answer = request(kafka, METADATA_V1, &body);
    // One broker: id, host, port, no rack; the controller; one topic.
    assert_eq!(answer[..4], [0, 0, 0, 1]);
    let host_bytes = usize::from(u16::from_be_bytes([answer[8], answer[9]]));
    let at = 10 + host_bytes + 4 + 2 + 4 + 4;
    i16::from_be_bytes([answer[at], answer[at + 1]])
}

#[test]
fn topics_survive_a_kill_and_a_freeze() {
    // GIVEN a broker with one topic
    let start = Instant::now();
    let mut kafka = Kafka::start().unwrap_or_else(|error| panic!("{error}"));
    println!("Kafka ready in {} ms", start.elapsed().as_millis());
    create_topic(&kafka, "kept");
    let (port, first_pid) = (kafka.port(), kafka.pid());

    // WHEN it is killed and started again THEN the topic is there, on the same port
    kafka.kill9().unwrap();
    assert!(!kafka.answers());
    let start = Instant::now();
    kafka.start_again().unwrap();
    println!("after kill9: ready again in {} ms", start.elapsed().as_millis());
    assert_eq!(topic_error(&kafka, "kept"), 0);
    assert_eq!(kafka.port(), port);
    assert_ne!(kafka.pid(), first_pid);
    // and topics are not made by asking for them
    assert_eq!(topic_error(&kafka, "other"), UNKNOWN_TOPIC);

    // WHEN it is frozen THEN it is silent, and thawed it answers
    kafka.freeze().unwrap();
    assert!(!kafka.answers());
    kafka.thaw().unwrap();
    assert_eq!(topic_error(&kafka, "kept"), 0);

    // WHEN it is stopped in order THEN it comes back all the same
    let start = Instant::now();
    kafka.stop().unwrap();
    println!("orderly stop took {} ms", start.elapsed().as_millis());
    kafka.start_again().unwrap();
    assert_eq!(topic_error(&kafka, "kept"), 0);

    // WHEN it is dropped THEN its folder goes
    let folder = kafka.folder().to_owned();
    drop(kafka);
    assert!(!folder.exists());
}

//! RabbitMQ: starts, answers, keeps its queues, freezes, ends with its name server.

use std::net::TcpStream;
use std::time::Instant;

use walrelay_harness::RabbitMq;

use super::LIMIT;
use crate::support::until;

const DECLARE: &str = r#"rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"kept">>),
    true, false, [], none, <<"test">>)"#;

/// The test's own, and the one that every node has.
const KEPT: [&str; 2] = ["kept", "outbox.dlq"];

fn queues(rabbitmq: &RabbitMq) -> Vec<String> {
    let names =
        "[binary_to_list(Name) || {resource, _, queue, Name} <- rabbit_amqqueue:list_names()]";
    let listed = rabbitmq.eval(names).unwrap();
    let mut names: Vec<_> = listed.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    names.sort();
    names
}

/// A stream is listed a moment after the start.
fn assert_kept(rabbitmq: &RabbitMq) {
    until("the queues", LIMIT, || (queues(rabbitmq) == KEPT).then_some(()));
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn queues_survive_a_kill_and_a_freeze() {
    // GIVEN a node with a durable queue
    let start = Instant::now();
    let mut rabbitmq = RabbitMq::start().unwrap_or_else(|error| panic!("{error}"));
    println!("RabbitMQ ready in {} ms", start.elapsed().as_millis());
    rabbitmq.eval(DECLARE).unwrap();
    rabbitmq.sync_declarations().unwrap();
    assert_kept(&rabbitmq);
    let (url, first_pid) = (rabbitmq.amqp_url(), rabbitmq.pid());

    // WHEN it is killed and started again THEN the queues are there, on the same port
    rabbitmq.kill9().unwrap();
    assert!(!rabbitmq.answers());
    let start = Instant::now();
    rabbitmq.start_again().unwrap();
    println!("after kill9: ready again in {} ms", start.elapsed().as_millis());
    assert_kept(&rabbitmq);
    assert_eq!(rabbitmq.amqp_url(), url);
    assert_ne!(rabbitmq.pid(), first_pid);

    // WHEN it is frozen THEN it is silent, and thawed it answers
    rabbitmq.freeze().unwrap();
    assert!(!rabbitmq.answers());
    rabbitmq.thaw().unwrap();
    until("an answer", LIMIT, || rabbitmq.answers().then_some(()));

    // WHEN it is stopped in order THEN it comes back all the same
    let start = Instant::now();
    rabbitmq.stop().unwrap();
    println!("orderly stop took {} ms", start.elapsed().as_millis());
    rabbitmq.start_again().unwrap();
    assert_kept(&rabbitmq);

    // WHEN it is dropped THEN its folder and its name server go
    let folder = rabbitmq.folder().to_owned();
    let epmd = ("127.0.0.1", rabbitmq.epmd_port());
    assert!(TcpStream::connect(epmd).is_ok());
    drop(rabbitmq);
    assert!(!folder.exists());
    assert!(TcpStream::connect(epmd).is_err());
}

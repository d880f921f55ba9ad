//! Nodes that let a client in, send heartbeats, and answer nothing after that.

use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::settings::RabbitLogin;
use crate::uri::RabbitHost;
use walrelay_base::finding::faults;
use walrelay_base::secret::Secret;
use walrelay_harness::silent_node;
use walrelay_sink::UNREACHABLE;
use walrelay_sink::log::SILENT;

/// Begins to read a queue, and answers one question about it.
fn begin() -> impl FnMut(&[u8]) -> Option<Vec<u8>> + Clone + Send + 'static {
    let mut is_asked = false;
    move |method| {
        let tag = |at: usize| method[at..=at + usize::from(method[at])].to_vec();
        Some(match method {
            [0, 60, 0, 20, _, _, queue, ..] => {
                [vec![0, 60, 0, 21], tag(7 + usize::from(*queue))].concat()
            }
            [0, 60, 0, 30, ..] => [vec![0, 60, 0, 31], tag(4)].concat(),
            [0, 50, 0, 10, ..] if !std::mem::replace(&mut is_asked, true) => {
                vec![0, 50, 0, 11, 1, b'q', 0, 0, 0, 0, 0, 0, 0, 0]
            }
            _ => return None,
        })
    }
}

/// A sink whose broker has such a node alone.
fn node(answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + Clone + Send + 'static) -> RabbitSettings {
    let (address, _ended) = silent_node(answer).unwrap();
    RabbitSettings {
        hosts: vec![RabbitHost { name: address.ip().to_string(), port: address.port() }],
        vhost: "/".to_owned(),
        login: RabbitLogin::Plain("u".to_owned(), Secret::new("p")),
        ..RabbitSettings::default()
    }
}

/// The result of what may wait for ever.
fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    std::thread::spawn(move || drop(done.send(work())));
    result
}

#[test]
fn a_policy_that_deletes_nothing_of_a_small_stream_is_not_offered_as_if_it_did() {
    let vhost = "v$(id)".to_owned();
    let settings = RabbitSettings { vhost, ..RabbitSettings::default() };
    let address = DeadLetterAddress::default();
    let refused = settings.dead_letter_deletion(&address, Duration::from_secs(60));
    let Err(fault) = refused else { panic!("it deletes") };
    assert!(fault.mend.contains("\"max-age\": \"60s\""), "{fault}");
    let policy =
        "set_policy -p 'v$(id)' --apply-to queues walrelay-dead-letters '^outbox\\.dlq$' '";
    for told in [policy, "whole segment files", "never the last one", "500 MB"] {
        assert!(fault.mend.contains(told), "{fault}");
    }
}

#[test]
fn a_node_that_answers_no_question_is_told_and_waited_for() {
    let required =
        || Requirements { dead_letters: Some(DeadLetterAddress::default()), ..Default::default() };
    let silent = node(|_| None);
    let begins = node(begin());
    let (checked, made, opened) = (silent.clone(), silent.clone(), silent.clone());
    let read = begins.clone();
    let first = |found: Vec<Finding>| faults(&found).next().cloned();
    // WHEN it is asked by check and init, and for the dead letters, at once or when they are read
    let outcomes = [
        (&silent, UNREACHABLE, run(move || first(checked.inspect(&required())))),
        (&silent, UNREACHABLE, run(move || made.prepare(&required(), false).err()?.pop())),
        (
            &silent,
            SILENT,
            run(move || opened.log(&DeadLetterAddress::default(), ReadFrom::Beginning).err()),
        ),
        (
            &begins,
            SILENT,
            run(move || {
                let log = read.log(&DeadLetterAddress::default(), ReadFrom::Beginning);
                log.unwrap().next(Duration::ZERO).err()
            }),
        ),
    ];
    // THEN each ends, and names it
    for (node, code, outcome) in outcomes {
        let fault = outcome.recv_timeout(Duration::from_secs(30)).expect("it ends");
        let fault = fault.expect("nobody answers");
        let host = &node.hosts[0];
        let told = format!("{host} lets a client in, and answers no question within ");
        assert!(fault.what.contains(&told), "{fault}");
        assert_eq!((fault.code, fault.may_pass), (code, true));
    }
}

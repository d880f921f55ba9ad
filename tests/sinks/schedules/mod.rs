//! Returns, acks and nacks in every order that the protocol allows: what was routed is confirmed,
//! what was not is told as failed, each once, and no other message is blamed or thanked for it.

mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use walrelay::sink::Disposition;
use walrelay_harness::kit::volume;

use self::plan::{Plan, id};
use crate::sinks::amqp::{Peer, Server};
use crate::sinks::section;
use crate::sinks::test_relay::{Event, TestRelay, seed};

const CONNECTIONS: u64 = 4;

#[test]
fn every_order_of_returns_and_confirms_settles_each_message_as_the_broker_meant_it() {
    let seed = seed();
    let repeat =
        format!("WALRELAY_SEED={seed} cargo test --test main sinks::schedules -- --nocapture");
    println!("seed {seed}; repeat it with: {repeat}");
    for connection in 0..CONNECTIONS {
        // GIVEN a broker that answers as the schedule says
        let schedules = volume(500, 3_000);
        let range = connection * schedules..(connection + 1) * schedules;
        let served = range.clone();
        let server = Server::start(move |_, socket| {
            let mut peer = Peer::welcome(socket)?;
            let first = peer.next()?;
            peer.ack(first.tag, false);
            for schedule in served.clone() {
                Plan::new(seed, schedule).play(schedule, &mut peer)?;
            }
            peer.until_gone()
        });
        let mut relay = TestRelay::open(section::rabbitmq(server.port, Duration::from_secs(10)));
        // One confirm, and all messages of a schedule are sent before the first answer.
        relay.publish(&Event::new("some.key", "first"));
        relay.settle();
        // WHEN the messages of one schedule after the other are published
        for schedule in range {
            play(&mut relay, seed, schedule);
        }
        assert!(
            relay.reachability.is_empty(),
            "a connection was lost: {:?}; {repeat}",
            relay.reachability
        );
    }
}

fn play(relay: &mut TestRelay, seed: u64, schedule: u64) {
    let plan = Plan::new(seed, schedule);
    let mut sequences = BTreeMap::new();
    for (number, round) in plan.rounds.iter().enumerate() {
        for &member in round.keys() {
            match sequences.get(&member) {
                Some(&sequence) => relay.retry(sequence),
                None => {
                    let value = vec![b'x'; member * 7 % 40];
                    let event = Event::new("some.key", id(schedule, member));
                    let event = Event { value: Some(value), ..event };
                    sequences.insert(member, relay.publish(&event));
                }
            }
        }
        relay.confirmed.clear();
        relay.failures.clear();
        relay.settle();
        // THEN each is settled as the broker meant it; that none is settled twice, the test relay
        // sees
        for (member, fate) in round {
            let sequence = sequences[member];
            let at = format!("seed {seed}, schedule {schedule}, round {number}, message {member}");
            let failure = relay.refused.get(&sequence);
            let told = failure.map(|failure| failure.class.as_str());
            assert_eq!(told, fate.class(), "{at} ({fate:?})");
            assert!(failure.is_none_or(|it| it.disposition == Disposition::Transient), "{at}");
            assert_eq!(relay.confirmed.contains(&sequence), fate.class().is_none(), "{at}");
        }
        assert_eq!(relay.confirmed.len() + relay.failures.len(), round.len(), "{seed} {schedule}");
    }
    relay.forget_refused();
}

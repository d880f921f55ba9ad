//! Connections that fail without a word: silence, lost answers, slow ones. What is not confirmed
//! is sent again in order, and of a key only one event is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use walrelay_harness::kit::Rng;

use crate::sinks::amqp::{Peer, Server};
use crate::sinks::section;
use crate::sinks::test_relay::{Event, TestRelay, seed};

const HEARTBEAT: Duration = Duration::from_secs(10);

#[test]
fn a_broker_that_falls_silent_is_left_after_two_heartbeats() {
    // GIVEN a broker that takes two events and is never heard again; the socket stays open
    let silent = Arc::new(Mutex::new(None));
    let (since, arrived) = (Arc::clone(&silent), Arc::new(Mutex::new(None)));
    let next = Arc::clone(&arrived);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        if number == 0 {
            peer.next()?;
            peer.next()?;
            peer.flush()?;
            *since.lock().unwrap() = Some(Instant::now());
            peer.fall_silent();
            return Ok(());
        }
        next.lock().unwrap().get_or_insert(Instant::now());
        loop {
            let message = peer.next()?;
            peer.ack(message.tag, false);
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, Duration::from_secs(1)));
    relay.publish(&Event::new("k", "0"));
    relay.publish(&Event::new("k", "1"));
    // WHEN two heartbeats pass THEN another connection is made, and takes both
    relay.settle();
    // Without a key there is no order.
    relay.confirmed.sort_unstable();
    assert_eq!(relay.confirmed, [0, 1]);
    assert_eq!(relay.reachability, [false, true]);
    let began = silent.lock().unwrap().unwrap();
    let silence = arrived.lock().unwrap().unwrap().duration_since(began);
    assert!(silence > Duration::from_millis(900), "left after {silence:?}");
    assert!(silence < Duration::from_secs(15), "left after {silence:?}");
}

#[test]
fn a_host_that_accepts_and_never_greets_costs_one_deadline() {
    // GIVEN a second connection that is accepted and not answered
    let server = Server::start(|number, socket| {
        if number == 1 {
            return Ok(());
        }
        let mut peer = Peer::welcome(socket)?;
        let message = peer.next()?;
        if number == 0 {
            return Ok(());
        }
        peer.ack(message.tag, false);
        peer.until_gone()
    });
    // WHEN the first is lost THEN the third carries the event
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    relay.publish(&Event::new("k", "0"));
    relay.settle();
    assert_eq!(relay.confirmed, [0]);
}

/// The log of a broker that hangs up.
#[derive(Default)]
struct Log {
    /// The numbers of each key in the order in which they came.
    came: BTreeMap<String, Vec<u64>>,
    /// The problem, if there was one.
    wrong: Vec<String>,
    connections: usize,
}

const KEYS: u64 = 20;
const EVENTS: u64 = 2_000;

/// Takes up to `most` messages, acking some, and then hangs up or not.
fn hang_up(
    peer: &mut Peer,
    log: &Mutex<Log>,
    rng: &mut Rng,
    most: Option<u64>,
) -> std::io::Result<()> {
    let mut open: BTreeMap<u64, String> = BTreeMap::new();
    let (mut highest, mut acked_any, mut taken) = (None, false, 0);
    while most.is_none_or(|most| taken < most) {
        let Some(message) = peer.next_within(Duration::from_millis(5))? else {
            // Nothing more is due before something is confirmed.
            if let Some((tag, _)) = open.pop_first() {
                peer.ack(tag, false);
                acked_any = true;
            }
            continue;
        };
        taken += 1;
        let number: u64 = message.id().parse().unwrap();
        let key = message.key();
        let mut log = log.lock().unwrap();
        // Until something is confirmed nothing new becomes due: it is all in the first order.
        if !acked_any && highest.is_some_and(|highest| highest > number) {
            log.wrong.push(format!("{number} was sent after {highest:?}"));
        }
        highest = Some(number);
        if open.values().any(|other| *other == key) {
            log.wrong.push(format!("{number}: two of key {key} are under way"));
        }
        log.came.entry(key.clone()).or_default().push(number);
        drop(log);
        open.insert(message.tag, key);
        while !open.is_empty() && (open.len() as u64 == KEYS || rng.chance(0.5)) {
            let at = usize::try_from(rng.below(open.len() as u64)).unwrap();
            let tag = *open.keys().nth(at).unwrap();
            // The answer is lost with some probability: the connection ends before it is flushed.
            peer.ack(tag, false);
            open.remove(&tag);
            acked_any = true;
            if most.is_none() || rng.chance(0.9) {
                peer.flush()?;
            }
        }
    }
    Ok(())
}

#[test]
fn events_whose_answer_was_lost_are_sent_again_in_order_with_one_of_a_key_under_way() {
    // GIVEN a broker that takes events, answers some, and hangs up, thirty times
    let seed = seed();
    println!("seed {seed}");
    let log = Arc::new(Mutex::new(Log::default()));
    let own = Arc::clone(&log);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        own.lock().unwrap().connections += 1;
        let mut rng = Rng::fork(seed, number as u64);
        let most = (number < 30).then(|| 1 + rng.below(60));
        hang_up(&mut peer, &own, &mut rng, most)
    });
    // WHEN events of twenty keys are published
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    for number in 0..EVENTS {
        let key = format!("key{}", number % KEYS);
        relay.publish(&Event::new("k", number.to_string()).keyed(key));
    }
    relay.settle();
    // THEN all are confirmed, and of each key the first deliveries are in order
    let log = log.lock().unwrap();
    assert!(log.connections > 30, "{} connections; seed {seed}", log.connections);
    assert_eq!(log.wrong, Vec::<String>::new(), "seed {seed}");
    for (key, came) in &log.came {
        let mut seen = BTreeSet::new();
        let first: Vec<u64> = came.iter().copied().filter(|number| seen.insert(*number)).collect();
        assert!(first.is_sorted(), "{key}: {first:?}; seed {seed}");
        assert_eq!(first.len() as u64, EVENTS / KEYS, "{key}; seed {seed}");
        // What comes again is the newest that came: nothing older than it is open.
        assert!(came.is_sorted(), "{key}: {came:?}; seed {seed}");
    }
    assert_eq!(relay.confirmed.len() as u64, EVENTS);
    assert_eq!(relay.failures, []);
}

#[test]
fn slow_answers_bound_what_is_in_flight() {
    const IN_FLIGHT_MAX: u64 = 1024;
    const MOMENT: Duration = Duration::from_millis(200);
    // GIVEN a broker that answers when nothing more comes
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        let (mut answered, mut last) = (0, 0);
        loop {
            while let Some(message) = peer.next_within(MOMENT)? {
                last = message.tag;
            }
            let mut most = seen.lock().unwrap();
            *most = last.saturating_sub(answered).max(*most);
            drop(most);
            // The first ones each, and the rest together.
            (answered + 1..=last.min(answered + 20)).for_each(|tag| peer.ack(tag, false));
            if last > answered {
                peer.ack(last, true);
            }
            answered = last;
        }
    });
    // WHEN a window of events without a key is handed over
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    for number in 0..10_000 {
        relay.publish(&Event::new("k", number.to_string()));
    }
    relay.settle();
    // THEN no more than the bound was in flight, and all are confirmed in the end
    assert_eq!(*most.lock().unwrap(), IN_FLIGHT_MAX);
    assert_eq!(relay.confirmed.len(), 10_000);
}

#[test]
fn a_destination_without_answers_bounds_no_other() {
    // GIVEN a broker that answers nothing for one destination
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        loop {
            let message = peer.next()?;
            match message.routing_key.as_str() {
                "silent" => *seen.lock().unwrap() += 1,
                _ => peer.ack(message.tag, false),
            }
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    // WHEN events for both are handed over
    let good: Vec<u64> = (0..2_000)
        .map(|number| {
            relay.publish(&Event::new("silent", format!("silent {number}")));
            relay.publish(&Event::new("good", format!("good {number}")))
        })
        .collect();
    // THEN all of the other are confirmed, and few of it were sent
    relay.until("the others", |relay| good.iter().all(|it| relay.confirmed.contains(it)));
    assert_eq!(relay.confirmed.len(), good.len());
    assert!(*most.lock().unwrap() < 100, "{most:?}");
}

#[test]
fn destinations_share_a_channel_where_the_broker_allows_few() {
    // GIVEN a broker that allows three channels, of which questions may need two
    let connections = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&connections);
    let server = Server::start(move |_, socket| {
        *seen.lock().unwrap() += 1;
        let mut peer = Peer::welcome_with(socket, 3)?;
        loop {
            let message = peer.next()?;
            peer.ack(message.tag, false);
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    // WHEN events for more destinations come THEN all are confirmed over one connection
    for number in 0..300 {
        relay.publish(&Event::new(&format!("topic {}", number % 10), number.to_string()));
    }
    relay.settle();
    assert_eq!((relay.confirmed.len(), *connections.lock().unwrap()), (300, 1));
}

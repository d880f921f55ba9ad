//! A broker with an alarm takes nothing: then the sink takes nothing either, and nothing grows.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use walrelay::sink::PublishError;

use crate::sinks::amqp::{Peer, Server};
use crate::sinks::section;
use crate::sinks::test_relay::{Event, TestRelay};

#[test]
fn a_blocked_connection_refuses_events_until_it_is_unblocked() {
    // GIVEN a broker that blocks with one event in flight
    let (tell, told) = channel::<()>();
    let (told, early) = (Mutex::new(told), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&early);
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        let first = peer.next()?;
        peer.block("low on memory")?;
        // A heartbeat's worth of what comes while it is blocked.
        while told.lock().unwrap().try_recv().is_err() {
            let came = peer.next_within(Duration::from_millis(10))?;
            seen.lock().unwrap().extend(came.map(|message| message.id().to_owned()));
        }
        peer.unblock()?;
        peer.ack(first.tag, false);
        loop {
            let message = peer.next()?;
            peer.ack(message.tag, false);
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, Duration::from_secs(10)));
    relay.publish(&Event::new("k", "first"));
    relay.until("the block is told", |relay| relay.reachability == [false]);
    // WHEN more is offered THEN it is refused as often as it is offered
    for _ in 0..100_000 {
        assert_eq!(relay.offer(&Event::new("k", "more")), Err(PublishError::QueueFull));
    }
    relay.poll(Duration::from_millis(50));
    assert!(relay.confirmed.is_empty(), "{:?}", relay.confirmed);
    // WHEN the alarm is cleared THEN it is told, and events flow again
    tell.send(()).unwrap();
    relay.until("the end of the block is told", |relay| relay.reachability == [false, true]);
    for i in 0..100 {
        relay.publish(&Event::new("k", format!("later{i}")));
    }
    relay.settle();
    assert_eq!(relay.confirmed.len(), 101);
    assert_eq!(*early.lock().unwrap(), Vec::<String>::new(), "sent while it was blocked");
}

#[test]
fn a_connection_that_is_lost_while_blocked_is_replaced() {
    // GIVEN a broker that blocks and then dies
    let (tell, told) = channel::<()>();
    let told = Mutex::new(told);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        let first = peer.next()?;
        if number == 0 {
            peer.block("low on disk")?;
            while told.lock().unwrap().try_recv().is_err() {
                peer.next_within(Duration::from_millis(10))?;
            }
            return Ok(());
        }
        peer.ack(first.tag, false);
        loop {
            let message = peer.next()?;
            peer.ack(message.tag, false);
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, Duration::from_secs(10)));
    relay.publish(&Event::new("k", "first"));
    relay.until("the block is told", |relay| relay.reachability == [false]);
    // WHEN it dies THEN the next one, which is not blocked, takes everything
    tell.send(()).unwrap();
    relay.publish(&Event::new("k", "second"));
    relay.settle();
    relay.confirmed.sort_unstable();
    assert_eq!(relay.confirmed, [0, 1]);
    assert_eq!(relay.reachability, [false, false, true], "blocked, then lost, then back");
}

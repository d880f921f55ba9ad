//! The broker closes the channel or the connection: over one message, over what it lacks, or over
//! itself. Only the message that is at fault fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use walrelay::sink::{Disposition, Requirements, StartupCheck};

use crate::sinks::amqp::{Peer, Published, Server};
use crate::sinks::section;
use crate::sinks::test_relay::{Event, LIMIT, TestRelay, dead_letter_cause, dead_letter_writer};

const HEARTBEAT: Duration = Duration::from_secs(10);
/// Long enough for a client that would send too much to have sent it.
const MOMENT: Duration = Duration::from_millis(100);

fn five(prefix: &str) -> Vec<Event> {
    (0..5).map(|i| Event::new("k", format!("{prefix}{i}"))).collect()
}

fn collect(peer: &mut Peer, count: usize) -> io::Result<Vec<Published>> {
    (0..count).map(|_| peer.next()).collect()
}

fn ids(messages: &[Published]) -> Vec<&str> {
    messages.iter().map(Published::id).collect()
}

/// Closes over the message `c2` however often it comes, and takes all others.
fn close_over_one(
    code: u16,
    by: fn(&mut Peer, u16) -> io::Result<()>,
) -> (Server, Arc<AtomicUsize>) {
    let too_many = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&too_many);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        if number == 0 {
            collect(&mut peer, 5)?;
            by(&mut peer, code)?;
            return peer.until_gone();
        }
        loop {
            let message = peer.next()?;
            // While the culprit is looked for, one message is in flight at a time.
            if message.id().starts_with('c') && peer.next_within(MOMENT)?.is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            if message.id() == "c2" {
                by(&mut peer, code)?;
                return peer.until_gone();
            }
            peer.ack(message.tag, false);
        }
    });
    (server, too_many)
}

fn by_channel(peer: &mut Peer, code: u16) -> io::Result<()> {
    peer.close_channel(code, "the broker's words")
}

fn by_connection(peer: &mut Peer, code: u16) -> io::Result<()> {
    peer.close_connection(code, "the broker's words")
}

fn only_the_culprit_fails(code: u16, class: &str, by: fn(&mut Peer, u16) -> io::Result<()>) {
    let expected = (Disposition::Terminal, class);
    only_the_culprit_fails_as(code, expected, by);
}

fn only_the_culprit_fails_as(
    code: u16,
    expected: (Disposition, &str),
    by: fn(&mut Peer, u16) -> io::Result<()>,
) {
    let (server, too_many) = close_over_one(code, by);
    // GIVEN five in flight
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    let sequences: Vec<u64> = five("c").iter().map(|event| relay.publish(event)).collect();
    // WHEN the broker closes over one of them, whenever it comes
    relay.settle();
    // THEN that one fails, and the others are confirmed
    assert_eq!(relay.failures.len(), 1, "{:?}", relay.failures);
    let (sequence, failure) = relay.failures[0].clone();
    assert_eq!(sequence, sequences[2]);
    assert_eq!((failure.disposition, failure.class.as_str()), expected);
    assert!(failure.subject.contains("c2"), "{}", failure.subject);
    assert!(failure.reason.contains("the broker's words"), "{}", failure.reason);
    assert_eq!(relay.confirmed.len(), 4);
    assert_eq!(too_many.load(Ordering::SeqCst), 0, "suspects were sent together");
    // AND the sink goes on
    relay.publish(&Event::new("k", "d"));
    relay.settle();
    assert_eq!(relay.confirmed.len(), 5);
}

#[test]
fn a_channel_closed_over_one_of_several_fails_only_that_one() {
    only_the_culprit_fails(406, "rabbitmq.precondition-failed", by_channel);
}

#[test]
fn a_channel_closed_with_an_unknown_code_fails_only_the_culprit() {
    only_the_culprit_fails(599, "rabbitmq.closed-599", by_channel);
}

#[test]
fn a_connection_closed_over_a_frame_fails_only_the_culprit() {
    only_the_culprit_fails(501, "rabbitmq.frame-error", by_connection);
}

/// Five are in flight when `close` ends the first connection; the second takes all.
fn an_outage(close: fn(&mut Peer) -> io::Result<()>) {
    let again = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&again);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        let messages = collect(&mut peer, 5)?;
        if number == 0 {
            close(&mut peer)?;
            return peer.until_gone();
        }
        seen.lock().unwrap().extend(ids(&messages).into_iter().map(str::to_owned));
        peer.ack(5, true);
        peer.until_gone()
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    for event in five("o") {
        relay.publish(&event);
    }
    relay.settle();
    assert_eq!(relay.failures, [], "an outage is nobody's fault");
    assert_eq!(relay.confirmed.len(), 5);
    assert_eq!(*again.lock().unwrap(), ["o0", "o1", "o2", "o3", "o4"], "sent again in order");
    assert_eq!(relay.reachability, [false, true], "the outage and its end are told");
}

#[test]
fn a_broker_that_cannot_do_what_is_asked_is_told_as_such() {
    // GIVEN a broker that closes with "not implemented" over what it is sent
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        collect(&mut peer, 2)?;
        peer.close_connection(540, "NOT_IMPLEMENTED")?;
        peer.until_gone()
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    relay.publish(&Event::new("k", "a"));
    relay.publish(&Event::new("k", "b"));
    relay.until("it is told", |relay| relay.unable.is_some());
    // THEN it is told that no event will pass, and none is blamed
    let failure = relay.unable.take().unwrap();
    assert_eq!(failure.disposition, Disposition::Halt);
    assert_eq!((failure.class.as_str(), failure.known), ("rabbitmq.not-implemented", true));
    assert_eq!((relay.confirmed.len(), relay.failures.len()), (0, 0));
}

#[test]
fn a_channel_closed_for_want_of_a_right_fails_only_the_culprit() {
    let expected = (Disposition::Transient, "rabbitmq.access-refused");
    only_the_culprit_fails_as(403, expected, by_channel);
}

#[test]
fn a_broker_that_names_where_the_right_is_missing_is_believed() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        if number == 0 {
            collect(&mut peer, 5)?;
            let text = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'guest'";
            peer.close_channel(403, text)?;
            return peer.until_gone();
        }
        count.fetch_add(usize::from(peer.next_within(MOMENT)?.is_some()), Ordering::SeqCst);
        peer.until_gone()
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    let sequences: Vec<u64> = five("c").iter().map(|event| relay.publish(event)).collect();
    // WHEN the broker refuses the exchange of all of them
    relay.until("the failures", |relay| relay.failures.len() == 5);
    // THEN each has failed, and none is sent again before it is retried
    let failed: Vec<u64> = relay.failures.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(failed, sequences);
    assert_eq!((relay.confirmed.len(), sent.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_refusal_that_names_no_message_in_flight_fails_only_the_culprit() {
    // GIVEN a broker whose text seems to name another exchange, as that of such a routing key does
    let by = |peer: &mut Peer, code| {
        let text = "ACCESS_REFUSED - access to topic '' in exchange 'z' in vhost '/' refused: the broker's words";
        peer.close_channel(code, text)
    };
    let expected = (Disposition::Transient, "rabbitmq.access-refused");
    only_the_culprit_fails_as(403, expected, by);
}

#[test]
fn a_silent_queue_does_not_keep_a_doubtful_event_waiting() {
    // GIVEN a broker that never answers for the message `silent`, and closes over `c`
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        loop {
            let message = peer.next()?;
            match message.id() {
                "silent" => {}
                "c" => {
                    peer.close_channel(406, "the broker's words")?;
                    return peer.until_gone();
                }
                _ => peer.ack(message.tag, false),
            }
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    let silent = relay.publish(&Event::new("a", "silent"));
    let culprit = relay.publish(&Event::new("b", "c"));
    let other = relay.publish(&Event::new("c", "d"));
    // WHEN both were in flight at the close THEN the one to blame is found
    relay.until("the failure", |relay| !relay.failures.is_empty());
    assert_eq!(relay.failures.iter().map(|(it, _)| *it).collect::<Vec<_>>(), [culprit]);
    // AND others are published, while the first still has no answer
    relay.until("the other", |relay| relay.confirmed.contains(&other));
    assert!(!relay.confirmed.contains(&silent));
    let last = relay.publish(&Event::new("d", "e"));
    relay.until("a later one", |relay| relay.confirmed.contains(&last));
}

#[test]
fn a_connection_that_is_forced_closed_is_an_outage() {
    an_outage(|peer| peer.close_connection(320, "CONNECTION_FORCED"));
}

#[test]
fn a_connection_closed_by_an_internal_error_is_an_outage() {
    an_outage(|peer| peer.close_connection(541, "INTERNAL_ERROR"));
}

#[test]
fn a_connection_that_is_cut_is_an_outage() {
    an_outage(|_| Err(io::ErrorKind::ConnectionAborted.into()));
}

#[test]
fn an_exchange_that_is_deleted_under_way_fails_its_events_until_it_is_back() {
    // GIVEN an exchange that goes away with five in flight, two of one key
    let there = Arc::new(AtomicBool::new(false));
    let (back, came) = (Arc::clone(&there), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&came);
    let server = Server::start(move |number, socket| {
        let mut peer = Peer::welcome(socket)?;
        if number == 0 {
            collect(&mut peer, 4)?;
            peer.close_channel(404, "NOT_FOUND - no exchange 'gone' in vhost '/'")?;
            return peer.until_gone();
        }
        if !back.load(Ordering::SeqCst) {
            peer.missing.insert("gone".to_owned());
        }
        loop {
            if let Some(message) = peer.next_within(Duration::from_millis(2))? {
                seen.lock().unwrap().push(message.id().to_owned());
                peer.ack(message.tag, false);
            }
            if back.load(Ordering::SeqCst) {
                peer.missing.clear();
            }
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    let event = |id: &str| Event { exchange: "gone".to_owned(), ..Event::new("k", id) };
    let first = relay.publish(&event("a0").keyed("a"));
    let second = relay.publish(&event("a1").keyed("a"));
    for id in ["b", "c", "d"] {
        relay.publish(&event(id).keyed(id));
    }
    // WHEN the sink finds it missing THEN the events that could be sent fail, for now
    relay.until("four failures", |relay| relay.failures.len() == 4);
    for failure in relay.refused.values() {
        assert_eq!(failure.disposition, Disposition::Transient);
        assert_eq!(failure.class, "rabbitmq.not-found");
    }
    assert!(relay.refused.contains_key(&first) && !relay.refused.contains_key(&second));
    // AND another exchange is not held up by it
    let other = relay.publish(&Event { exchange: "here".to_owned(), ..Event::new("k", "other") });
    relay.until("the other is confirmed", |relay| relay.confirmed.contains(&other));
    // WHEN it is back and they are retried THEN all are confirmed, and the key keeps its order
    there.store(true, Ordering::SeqCst);
    while relay.confirmed.len() < 6 {
        for sequence in relay.refused.keys().copied().collect::<Vec<_>>() {
            relay.retry(sequence);
        }
        relay.poll(Duration::from_millis(5));
    }
    let came = came.lock().unwrap();
    let place = |id: &str| came.iter().position(|it| it == id).unwrap();
    assert_eq!(came.len(), 6, "{came:?}");
    assert!(place("a0") < place("a1"), "{came:?}");
}

#[test]
fn what_no_longer_fits_into_a_frame_fails_without_being_sent_and_its_dead_letter_is_cut() {
    const SMALL: u32 = 8_192;
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let server = Server::start(move |number, socket| {
        let mut peer =
            Peer::welcome_with_frames(socket, if number == 0 { 4 * SMALL } else { SMALL })?;
        if number == 0 {
            collect(&mut peer, 2)?;
            return Ok(());
        }
        loop {
            let message = peer.next()?;
            let headers = message.properties.headers().clone().unwrap_or_default();
            let names = headers.inner().keys().map(ToString::to_string);
            seen.lock().unwrap().push((message.id().to_owned(), names.collect::<Vec<_>>()));
            peer.ack(message.tag, false);
        }
    });
    // GIVEN two in flight, of which one has headers that fill more than half of a frame
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    let headers =
        [("large", 20_000), ("small", 5)].map(|(name, bytes)| (name.into(), vec![b'h'; bytes]));
    let large = relay.publish(&Event { headers: headers.into(), ..Event::new("k", "large") });
    let small = relay.publish(&Event::new("k", "small"));
    // WHEN the broker is lost, and is back with smaller frames
    relay.settle();
    // THEN that one fails without being sent
    assert_eq!(relay.confirmed, [small]);
    let (sequence, failure) = relay.failures[0].clone();
    assert_eq!((sequence, failure.class.as_str()), (large, "rabbitmq.headers-too-large"));
    assert_eq!(failure.disposition, Disposition::Terminal);
    // AND its dead letter is sent without the header that does not fit
    relay.replace_with_dead_letter(
        large,
        &dead_letter_writer("x", "q"),
        &dead_letter_cause(&failure.class),
    );
    relay.settle();
    assert_eq!(relay.confirmed, [small, large]);
    let sent = sent.lock().unwrap();
    let [(first, _), (second, names)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!([first, second], ["small", "large"]);
    let has = |name: &str| names.iter().any(|known| known == name);
    assert!(has("small") && has("dlq-headers-dropped") && !has("large"), "{names:?}");
}

#[test]
fn a_broker_of_frames_that_are_too_small_is_refused_with_what_mends_it() {
    // GIVEN brokers of 4 KiB: one takes them, and one hangs up, as RabbitMQ 4.1 and later do
    for hangs_up in [false, true] {
        let server = Server::start(move |_, socket| {
            let mut peer = Peer::welcome_with_frames(socket, 4_096)?;
            if hangs_up { Ok(()) } else { peer.until_gone() }
        });
        // WHEN the sink is opened
        let (required, stop) = (Requirements::default(), AtomicBool::new(false));
        let check = StartupCheck { required: &required, stop: &stop };
        let refused = section::rabbitmq(server.port, HEARTBEAT).open(Some(&check)).err().unwrap();
        // THEN it says so
        assert_eq!(refused[0].code, "sink.frame-max", "{refused:?}");
        assert!(refused[0].mend.contains("frame_max"), "{refused:?}");
    }
}

#[test]
fn an_exchange_that_may_not_be_asked_for_and_is_missing_fails_its_events_alone() {
    // GIVEN a broker that answers no question about an exchange, as RabbitMQ 4.3.0 does
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        peer.hides_exchanges = true;
        loop {
            let message = peer.next()?;
            if message.exchange == "gone" {
                peer.close_channel(404, "NOT_FOUND - no exchange 'gone' in vhost '/'")?;
                return peer.until_gone();
            }
            peer.ack(message.tag, false);
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    // WHEN events are published to it, and to one that is missing
    let to = |exchange: &str, id: &str| Event { exchange: exchange.into(), ..Event::new("k", id) };
    let here = relay.publish(&to("here", "a"));
    let gone = relay.publish(&to("gone", "b"));
    relay.settle();
    let behind = relay.publish(&to("here", "c"));
    relay.settle();
    // THEN those of the missing one fail, and are no outage
    assert_eq!(relay.confirmed, [here, behind]);
    let (sequence, failure) = relay.failures[0].clone();
    assert_eq!((sequence, failure.class.as_str()), (gone, "rabbitmq.not-found"));
    assert_eq!((failure.disposition, relay.failures.len()), (Disposition::Transient, 1));
    assert!(relay.reachability.is_empty(), "{:?}", relay.reachability);
}

#[test]
fn an_exchange_that_is_missing_unseen_does_not_repeat_others_again_and_again() {
    // GIVEN a broker that answers no question about an exchange, closes over each message for `gone`,
    // and confirms others only after a pause
    let arrived = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let (seen, closes) = (Arc::clone(&arrived), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&closes);
    let server = Server::start(move |_, socket| {
        let mut peer = Peer::welcome(socket)?;
        peer.hides_exchanges = true;
        let mut waiting = Vec::new();
        loop {
            let Some(message) = peer.next_within(MOMENT)? else {
                waiting.drain(..).for_each(|tag| peer.ack(tag, false));
                continue;
            };
            if message.exchange == "gone" {
                count.fetch_add(1, Ordering::SeqCst);
                peer.close_channel(404, "NOT_FOUND - no exchange 'gone' in vhost '/'")?;
                return peer.until_gone();
            }
            *seen.lock().unwrap().entry(message.id().to_owned()).or_default() += 1;
            waiting.push(message.tag);
        }
    });
    let mut relay = TestRelay::open(section::rabbitmq(server.port, HEARTBEAT));
    let publish = |relay: &mut TestRelay, exchange: &str, id: &str| {
        let event = Event { exchange: exchange.into(), ..Event::new("k", id) };
        relay.publish(&event.keyed(id))
    };
    // WHEN events for it are published with others, and each is retried as soon as it fails
    let mut good = ["a", "b"].map(|id| publish(&mut relay, "good", id)).to_vec();
    for i in 0..10 {
        publish(&mut relay, "gone", &format!("gone{i}"));
    }
    let began = Instant::now();
    while closes.load(Ordering::SeqCst) < 2 {
        assert!(began.elapsed() < LIMIT, "{:?}", arrived.lock().unwrap());
        for sequence in relay.refused.keys().copied().collect::<Vec<_>>() {
            relay.retry(sequence);
        }
        if good.iter().all(|sequence| relay.confirmed.contains(sequence)) {
            good.push(publish(&mut relay, "good", &format!("later{}", good.len())));
        }
        relay.poll(Duration::from_millis(5));
    }
    relay.until("all others are confirmed", |relay| relay.confirmed.len() == good.len());
    // THEN only what was in flight at the first close is sent again, once
    let arrived = arrived.lock().unwrap();
    let most = |id: &str| if id.starts_with("later") { 1 } else { 2 };
    assert_eq!(arrived.len(), good.len());
    assert!(arrived.iter().all(|(id, times)| *times <= most(id)), "{arrived:?}");
    assert!(relay.failures.iter().all(|(_, it)| it.class == "rabbitmq.not-found"));
}

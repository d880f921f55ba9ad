//! Clients that follow events, and those who only probe.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::super::tests::{get, stage, streaming};
use super::*;
use crate::health::Pass;

/// A client of `/events`, which has read the head of the answer.
struct Client(BufReader<TcpStream>);

impl Client {
    fn ask(addr: SocketAddr) -> Client {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Client(BufReader::new(stream))
    }

    /// The head of the answer.
    fn head(&mut self) -> String {
        let mut head = String::new();
        while self.0.read_line(&mut head).unwrap() > 2 {}
        head
    }

    fn follow(addr: SocketAddr) -> Client {
        let mut client = Client::ask(addr);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        client
    }

    /// The next event: its name and data. None at the end.
    fn next(&mut self) -> Option<(String, Value)> {
        let (mut name, mut line) = (String::new(), String::new());
        while self.0.read_line(&mut line).unwrap() > 0 {
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).unwrap()));
            }
            line.clear();
        }
        None
    }

    fn read_to_end(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

#[test]
fn the_status_is_sent_at_once_and_each_second_and_a_sample_when_it_is_taken() {
    let mut stage = stage();
    stage.recorder.pass(&streaming(), 0);
    let mut client = Client::follow(stage.addr);
    let (name, status) = client.next().unwrap();
    assert_eq!((name.as_str(), &status["state"]), ("status", &"streaming".into()));
    assert!(status["rates"]["over_seconds"].is_u64(), "{status}");
    // WHEN more is in flight THEN one of the next two has it: one may be made meanwhile
    stage.recorder.pass(&Pass { in_flight_events: 7, ..streaming() }, 0);
    let in_flight: Vec<Value> = std::iter::from_fn(|| client.next())
        .filter(|(name, _)| name == "status")
        .map(|(_, mut status)| status["in_flight"]["events"].take())
        .take(2)
        .collect();
    assert!(in_flight.contains(&7.into()), "{in_flight:?}");
    // THEN a sample comes, which is the last of the history
    let sample = std::iter::from_fn(|| client.next()).find(|(name, _)| name == "sample");
    let (_, history) = get(stage.addr, "/history");
    let history: Value = serde_json::from_str(&history).unwrap();
    assert_eq!(history["interval_seconds"], 5);
    let samples = history["samples"].as_array().unwrap();
    assert!(samples.contains(&sample.unwrap().1), "{history}");
    assert_eq!(samples.last().unwrap()["in_flight"], 7);
    // WHEN a client comes THEN it is sent the last sample, too: it may have been taken just before
    let mut late = Client::follow(stage.addr);
    assert_eq!(late.next().unwrap().0, "status");
    let (name, last) = late.next().unwrap();
    assert_eq!((name.as_str(), &last["in_flight"]), ("sample", &7.into()));
}

#[test]
fn a_sample_is_kept_while_nobody_follows() {
    let (looks, seen) = watch::channel(Look::default());
    assert!(!looks.send_if_modified(|look| look.renew(None, Some((1, Arc::from("{}"))))));
    assert!(looks.send_if_modified(|look| look.renew(Some(Arc::from("{}")), None)));
    assert_eq!(seen.borrow().sample.as_ref().map(|(number, _)| *number), Some(1));
}

#[test]
fn the_rates_of_status_are_of_what_was_published() {
    let stage = stage();
    let rate = || {
        let (_, status) = get(stage.addr, "/status");
        serde_json::from_str::<Value>(&status).unwrap()
    };
    assert_eq!(rate()["latency_ms"], Value::Null);
    // WHEN events are published, while the clock moves on with each second
    let mut client = Client::follow(stage.addr);
    stage.metrics.events.at(crate::metrics::Outcome::Published).inc_by(50);
    stage.metrics.publish_latency_seconds.observe(0.0015);
    stage.now_ms.store(10_000, std::sync::atomic::Ordering::Relaxed);
    let is_seen = |(_, status): (String, Value)| status["rates"]["published_per_second"] == 5.0;
    assert!(std::iter::from_fn(|| client.next()).take(5).any(is_seen));
    let status = rate();
    assert_eq!(status["rates"]["published_per_second"], 5.0, "{status}");
    assert_eq!(status["rates"]["over_seconds"], 10, "{status}");
    assert_eq!(status["latency_ms"]["p50"], 1.5, "{status}");
}

#[test]
fn a_hundred_clients_of_events_do_not_delay_a_probe() {
    let mut stage = stage();
    stage.recorder.pass(&streaming(), 0);
    // GIVEN as many that follow as may
    let mut following: Vec<Client> =
        (0..FOLLOWERS_MAX).map(|_| Client::follow(stage.addr)).collect();
    // WHEN others want to THEN each is told why not
    let others: Vec<Client> = (FOLLOWERS_MAX..100).map(|_| Client::ask(stage.addr)).collect();
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(get(stage.addr, "/readyz"), (200, "ready\n".into()));
    }
    // THEN nobody has waited for a connection to grow old
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let refused = others.into_iter().filter_map(|other| {
        // A connection that gave way to another one is reset, or closed.
        let mut answer = String::new();
        let mut stream = other.0.into_inner();
        stream.read_to_string(&mut answer).is_ok().then_some(answer)
    });
    let refused: Vec<String> = refused.filter(|answer| !answer.is_empty()).collect();
    assert!(!refused.is_empty());
    for answer in refused {
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("8 clients follow /events already"), "{answer}");
    }
    // WHEN one of those that follow leaves THEN there is room for another
    assert!(following.iter_mut().all(|client| client.next().is_some()));
    drop(following.pop());
    let begun = Instant::now();
    let is_let_in = || Client::ask(stage.addr).head().starts_with("HTTP/1.1 200");
    while !is_let_in() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_stop_ends_the_events_at_once() {
    let mut stage = stage();
    let mut client = Client::follow(stage.addr);
    client.next().unwrap();
    let begun = Instant::now();
    drop(stage.admin.take());
    // THEN the answer has ended, and was not cut after the time that a stop waits for requests
    let rest = client.read_to_end();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(begun.elapsed() < super::super::STOP_GRACE, "{:?}", begun.elapsed());
}

fn on_runtime<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

fn follower(looks: watch::Receiver<Look>, ends_at: Instant) -> Follower {
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Follower { looks, sample_seen: None, due: VecDeque::new(), ends_at, _permit: permit }
}

#[test]
fn nobody_follows_beyond_the_end() {
    on_runtime(async {
        let (_looks, seen) = watch::channel(Look::default());
        assert!(follower(seen, Instant::now()).next().await.is_none());
    });
}

#[test]
fn a_slow_client_misses_a_status_but_no_sample() {
    on_runtime(async {
        let (looks, seen) = watch::channel(Look::default());
        let client = follower(seen, Instant::now() + Duration::from_secs(3600));
        // GIVEN three looks, the second with a sample, before the client takes the next event
        for sample in [None, Some((1, Arc::from("{}"))), None] {
            looks.send_modify(|look| {
                look.renew(Some(Arc::from("{}")), sample);
            });
        }
        drop(looks);
        // THEN it gets one status and the sample
        let events = futures_util::stream::StreamExt::count(unfold(client, Follower::next)).await;
        assert_eq!(events, 2);
    });
}

//! Kafka as it is run: three brokers, three replicas, two of which must have a record. A broker is killed
//! and comes back while events are written, so that leaders move, and a topic whose only replica it has is
//! without a leader for a while. In a soak run that lasts 30 seconds, and each broker is killed in turn.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use walrelay_harness::Kafka;
use walrelay_harness::consumer::{create_replicated_topic, leaders};
use walrelay_harness::load::ChaosWriters;
use walrelay_harness::oracle;

use crate::support::broker::{Destination, Reader};
use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, seed, shared_postgres, until, volume, wait_until,
};

const EVENTS_PER_SECOND: u64 = 400;
/// Values of `aggregatetype`, and topics of these names behind that of the fixture.
const TYPES: [&str; 2] = ["replicated", "single"];

struct Cluster {
    nodes: Vec<Kafka>,
    brokers: String,
    replicated: String,
    single: String,
    /// The broker that has the only replica of `single`.
    holder: usize,
}

#[test]
#[ignore = "soak"]
fn nothing_is_lost_or_repeated_when_leaders_move() {
    let _repeatable = Repeatable::new("e2e::three_brokers");
    // GIVEN three brokers, a topic on all of them and one on one of them
    let nodes = Kafka::start_cluster(3).unwrap();
    let brokers = nodes.iter().map(Kafka::bootstrap).collect::<Vec<_>>().join(",");
    let destination = Destination::Kafka { brokers: brokers.clone() };
    let site = Fixture::new(shared_postgres(), destination, "three_brokers");
    let topics = TYPES.map(|kind| format!("{}.{kind}", site.name));
    site.open_route(&topics[0]);
    let alone = [("min.insync.replicas", "1")];
    create_replicated_topic(&brokers, &topics[1], (1, 1), &alone).unwrap();
    let readers = topics.each_ref().map(|topic| site.reader_of(topic));
    let mut cluster = Cluster::new(nodes, brokers, topics);
    let _machine = half_machine();
    let mut config = site.config();
    config.topic = format!("{}.${{aggregatetype}}", site.name);
    let mut relay = site.relay_with(config);
    let over = AtomicBool::new(false);
    // WHEN a broker is killed under load, and comes back
    std::thread::scope(|scope| {
        let writers = scope.spawn(|| write_until(&site, &over));
        let rounds = scope.spawn(|| {
            let first = cluster.holder;
            (0..volume(1, 3)).for_each(|n| cluster.kill_one((first + n) % 3, &readers[0]));
        });
        let rounds = rounds.join();
        over.store(true, Ordering::Relaxed);
        writers.join().unwrap();
        rounds.unwrap();
    });
    // THEN every event is there once, in order
    site.wait_confirmed(&mut relay, LIMIT);
    let truth = oracle::read_truth(&site.url, "public.outbox").unwrap();
    let held: Vec<_> = readers.into_iter().flat_map(Reader::finish).flatten().collect();
    let verdict = oracle::check(&truth, &held, &HashSet::new());
    println!("{verdict}");
    verdict.assert_exact(0);
}

/// A second of the load after another.
fn write_until(site: &Fixture, over: &AtomicBool) {
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let load = site.writers(EVENTS_PER_SECOND, Duration::from_secs(1));
        let aggregatetypes = TYPES.map(str::to_owned).into();
        ChaosWriters { aggregatetypes, rows_max: 50, seed: seed() + number, ..load }.run().unwrap();
    }
}

impl Cluster {
    fn new(nodes: Vec<Kafka>, brokers: String, [replicated, single]: [String; 2]) -> Cluster {
        let holder = leaders(&brokers, &single).unwrap()[0].0.unwrap();
        let holder = usize::try_from(holder).unwrap() - 1;
        let cluster = Cluster { nodes, brokers, replicated, single, holder };
        cluster.wait_whole(0);
        cluster
    }

    /// Kills a broker, and starts it again when others lead its partitions and events arrive there.
    fn kill_one(&mut self, node: usize, reader: &Reader) {
        let began = Instant::now();
        self.nodes[node].kill9().unwrap();
        let killed = Cluster::id(node);
        self.wait("other leaders", &self.replicated, |leader, _| {
            leader.is_some_and(|leader| leader != killed)
        });
        let moved = began.elapsed();
        if node == self.holder {
            self.wait("a topic without a leader", &self.single, |leader, _| leader.is_none());
            let held = Duration::from_secs(volume(5, 30));
            wait_until("the end of the outage", || began.elapsed() > held);
        }
        reader.wait_until(reader.count() + EVENTS_PER_SECOND, LIMIT);
        self.nodes[node].start_again().unwrap();
        self.wait_whole(node);
        println!("broker {killed}: others lead after {moved:?}, whole after {:?}", began.elapsed());
    }

    /// Waits until all replicas are in sync, and this broker leads a partition.
    fn wait_whole(&self, node: usize) {
        self.wait("replicas in sync", &self.replicated, |_, in_sync| in_sync == 3);
        self.wait("the leader", &self.single, |leader, _| leader.is_some());
        until("a leader that has moved back", LIMIT, || {
            let leaders = leaders(&self.brokers, &self.replicated).ok()?;
            leaders.iter().any(|(leader, _)| *leader == Some(Cluster::id(node))).then_some(())
        });
    }

    /// Waits until every partition has such a leader, and so many replicas in sync.
    fn wait(&self, what: &str, topic: &str, state: impl Fn(Option<i32>, usize) -> bool) {
        until(what, LIMIT, || {
            let leaders = leaders(&self.brokers, topic).ok()?;
            let all = leaders.iter().all(|(leader, in_sync)| state(*leader, *in_sync));
            (!leaders.is_empty() && all).then_some(())
        });
    }

    fn id(node: usize) -> i32 {
        i32::try_from(node).unwrap() + 1
    }
}

//! Kafka as it is run: three brokers, three replicas, two of which must have a record. Each broker is
//! killed and comes back while events are written, so that every partition changes its leader, and one
//! partition has no leader for a while: 30 seconds in a soak run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use walrelay_harness::Kafka;
use walrelay_harness::consumer::{add_partition, leaders};
use walrelay_harness::load::ChaosWriters;

use crate::support::broker::{Destination, Reader};
use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, seed, shared_postgres, until, volume,
};

/// The broker that alone has the last partition.
const LONE: i32 = 3;
const REPLICATED: usize = 4;
const EVENTS_PER_SECOND: u64 = 400;

struct Cluster {
    nodes: Vec<Kafka>,
    brokers: String,
    topic: String,
}

#[test]
fn nothing_is_lost_or_repeated_when_leaders_move() {
    let _repeatable = Repeatable::new("e2e::three_brokers");
    let nodes = Kafka::start_cluster(3).unwrap();
    let brokers = nodes.iter().map(Kafka::bootstrap).collect::<Vec<_>>().join(",");
    let destination = Destination::Kafka { brokers: brokers.clone() };
    let site = Fixture::new(shared_postgres(), destination, "three_brokers");
    add_partition(&brokers, &site.name, LONE).unwrap();
    let mut cluster = Cluster { nodes, brokers, topic: site.name.clone() };
    cluster.wait_whole(LONE);
    let _machine = half_machine();
    // GIVEN a relay, and writers of all keys
    let (mut relay, reader) = (site.relay(), site.reader());
    let over = AtomicBool::new(false);
    // WHEN each broker is killed and comes back
    std::thread::scope(|scope| {
        let writers = scope.spawn(|| write_until(&site, &over));
        let rounds = scope.spawn(|| (1..=3).for_each(|id| cluster.kill_one(id, &reader)));
        let rounds = rounds.join();
        over.store(true, Ordering::Relaxed);
        writers.join().unwrap();
        rounds.unwrap();
    });
    // THEN every event is there once, in order
    let (verdict, _) = site.judge(&mut relay, reader);
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
        ChaosWriters { rows_max: 50, seed: seed() + number, ..load }.run().unwrap();
    }
}

impl Cluster {
    /// Kills a broker, and starts it again when another leads its partitions and they have got
    /// events from it.
    fn kill_one(&mut self, id: i32, reader: &Reader) {
        let began = Instant::now();
        self.node(id).kill9().unwrap();
        let moved = |leader: &Option<i32>| leader.is_some_and(|leader| leader != id);
        self.wait("other leaders", |leaders| leaders[..REPLICATED].iter().all(|(it, _)| moved(it)));
        let moved_after = began.elapsed();
        if id == LONE {
            self.wait("a partition without a leader", |leaders| leaders[REPLICATED].0.is_none());
            let held = Duration::from_secs(volume(5, 30));
            until("the end of the outage", LIMIT, || (began.elapsed() > held).then_some(()));
        }
        // The other partitions go on.
        reader.wait_until(reader.count() + EVENTS_PER_SECOND, LIMIT);
        self.node(id).start_again().unwrap();
        self.wait_whole(id);
        println!(
            "broker {id}: other leaders after {moved_after:?}, whole after {:?}",
            began.elapsed()
        );
    }

    /// Waits until all replicas are in sync, and this broker leads partitions.
    fn wait_whole(&self, id: i32) {
        self.wait("all replicas in sync, and leaders back", |leaders| {
            leaders[..REPLICATED].iter().all(|(_, in_sync)| *in_sync == 3)
                && leaders[REPLICATED].0 == Some(LONE)
                && leaders[..REPLICATED].iter().any(|(leader, _)| *leader == Some(id))
        });
    }

    fn wait(&self, what: &str, state: impl Fn(&[(Option<i32>, usize)]) -> bool) {
        until(what, LIMIT, || {
            let leaders = leaders(&self.brokers, &self.topic).ok()?;
            (leaders.len() == REPLICATED + 1 && state(&leaders)).then_some(())
        });
    }

    fn node(&mut self, id: i32) -> &mut Kafka {
        &mut self.nodes[usize::try_from(id).unwrap() - 1]
    }
}

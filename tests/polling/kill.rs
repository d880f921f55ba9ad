//! Two processes, each with eight workers, killed at random: nothing lost, order kept.

use std::time::Duration;

use walrelay_harness::kit::Rng;
use walrelay_harness::load::ChaosWriters;

use super::{config, polled_site, processes, statuses, wait_settled};
use crate::support::{Fixture, LIMIT, Repeatable, half_machine, seed, stop, until, volume};

const HOLDERS: &str = "select coalesce(string_agg(distinct locked_by, ' '), '') from outbox where status = 'in_progress'";

#[test]
fn two_processes_of_eight_workers_lose_and_reorder_nothing_over_many_kills() {
    let _alone = half_machine();
    let _repeat = Repeatable::new("polling::kill");
    let site = polled_site(Fixture::shared("polling_kill"));
    let reader = site.reader();
    let settings = "interval = \"20ms\"\nworkers = 8\nbatch_max = 200\nlease = \"1s\"";
    let mut relays = processes(&site, &config(&site, settings), 2);
    for relay in &mut relays {
        relay.wait_ready(LIMIT).unwrap();
    }
    // GIVEN a load that lasts as long as the kills at random moments of it
    let (events, seconds, most) = volume((1_500, 3, 6), (10_000, 8, 20));
    let mut rng = Rng::fork(seed(), 7);
    std::thread::scope(|scope| {
        let killing = scope.spawn(|| {
            for _ in 0..most {
                std::thread::sleep(Duration::from_millis(200 + rng.below(1_600)));
                // Whoever of the two has rows in hand.
                let victim = until("rows in somebody's hands", LIMIT, || {
                    let holders = site.value(HOLDERS);
                    relays.iter().position(|relay| holders.contains(&format!(":{}:", relay.pid())))
                });
                relays[victim].kill9().unwrap();
                relays[victim].restart().unwrap();
            }
        });
        for round in 0.. {
            let writers = site.writers(events, Duration::from_secs(seconds));
            let report = ChaosWriters { seed: seed() + round, ..writers }.run().unwrap();
            println!("{report:?}");
            if killing.is_finished() {
                break;
            }
        }
        killing.join().unwrap();
    });
    wait_settled(&site, LIMIT);
    for relay in &mut relays {
        assert!(relay.is_running(), "{}", relay.tail(20));
        stop(relay);
    }
    // THEN everything has arrived, in order per key
    let (verdict, _) = site.compare(reader);
    println!("{verdict}");
    assert!(verdict.committed >= events);
    // A kill repeats what was claimed and not settled: as many batches as there are workers.
    verdict.assert_exact(most * 8 * 200);
    assert_eq!(statuses(&site), format!("published {}", verdict.committed));
}

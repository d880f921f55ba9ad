//! Many processes on one table, brokers and databases that go away, and the way to the slot.

use std::time::Duration;

use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions};

use super::{config, polled_site, processes, statuses, wait_settled};
use crate::support::broker::Reader;
use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, name_on, on_both_brokers, query, shared_kafka,
    shared_postgres, until, volume, wait_until,
};

fn judge(site: &Fixture, reader: Reader, duplicates_max: u64) {
    let (verdict, _) = site.compare(reader);
    println!("{verdict}");
    verdict.assert_exact(duplicates_max);
}

fn stop(relay: &mut RelayProcess) {
    assert!(relay.is_running(), "{}", relay.tail(20));
    relay.wait_ready(LIMIT).unwrap();
    crate::support::stop(relay);
}

#[test]
fn processes_that_come_and_go_do_no_work_twice() {
    let _alone = half_machine();
    let site = polled_site(Fixture::shared("polling_together"));
    let reader = site.reader();
    let settings = "interval = \"10ms\"\nworkers = 8\nbatch_max = 50";
    let mut relays = processes(&site, &config(&site, settings), 3);
    let (events, seconds) = volume((5_000, 5), (20_000, 8));
    let writers = site.writers(events, Duration::from_secs(seconds));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writers.run().unwrap());
        // WHEN they are stopped and started again under load
        for round in 0..6 {
            let relay = &mut relays[round % 3];
            stop(relay);
            relay.restart().unwrap();
        }
        writing.join().unwrap();
    });
    wait_settled(&site, LIMIT);
    relays.iter_mut().for_each(stop);
    // THEN each row was published once
    judge(&site, reader, 0);
}

on_both_brokers!(an_outage_of_the_broker_costs_no_row_and_no_attempt, rabbitmq in soak);

fn an_outage_of_the_broker_costs_no_row_and_no_attempt(kind: BrokerKind) {
    let mut broker = Broker::start(kind).unwrap();
    let name = name_on(kind, "polling_outage");
    let site = polled_site(Fixture::new(shared_postgres(), &broker, &name));
    broker.sync_declarations().unwrap();
    let _alone = half_machine();
    let reader = site.reader();
    let mut relay = site.relay_with(config(&site, "interval = \"20ms\"\nlease = \"2s\""));
    let writers = site.writers(5_000, Duration::from_secs(6));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writers.run().unwrap());
        wait_until("rows to flow", || statuses(&site).contains("published"));
        broker.kill9().unwrap();
        wait_until("rows to wait", || statuses(&site).contains("pending"));
        let report = writing.join().unwrap();
        assert!(report.events_committed >= 5_000);
        broker.start_again().unwrap();
    });
    wait_settled(&site, LIMIT);
    stop(&mut relay);
    assert!(!statuses(&site).contains("failed"), "{}", statuses(&site));
    judge(&site, reader, 5_000);
}

#[test]
fn polling_goes_on_after_the_database_has_crashed() {
    let _alone = half_machine();
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = polled_site(Fixture::new(&postgres, shared_kafka(), "polling_crash"));
    let reader = site.reader();
    let mut relay = site.relay_with(config(&site, "interval = \"20ms\"\nlease = \"1s\""));
    let (events, seconds) = volume((5_000, 7), (10_000, 15));
    let writers = site.writers(events, Duration::from_secs(seconds));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writers.run().unwrap());
        wait_until("rows to flow", || statuses(&site).contains("published"));
        for _ in 0..2 {
            postgres.crash().unwrap();
            postgres.start_again().unwrap();
            let sql = "select count(*) from outbox where status = 'published'";
            let count = || query(&site.url, sql);
            let before = until("the database", LIMIT, || count().ok().flatten());
            until("rows to flow again", LIMIT, || {
                count().ok().flatten().filter(|now| *now != before).map(drop)
            });
        }
        writing.join().unwrap();
    });
    wait_settled(&site, LIMIT);
    stop(&mut relay);
    judge(&site, reader, 5_000);
}

#[test]
fn a_table_moves_from_polling_to_the_slot_under_load_and_nothing_is_lost_or_repeated() {
    let _alone = half_machine();
    let _repeat = Repeatable::new("polling::together::a_table_moves");
    let site = polled_site(Fixture::shared("polling_move"));
    // The publication is the handover's business, too.
    site.execute("drop publication walrelay");
    let reader = site.reader();
    let polling = config(&site, "interval = \"50ms\"\nworkers = 2\nbatch_max = 20");
    let mut pollers = processes(&site, &polling, 2);
    let would = site.command(&polling, &["outbox", "handover", "--dry-run"]).wait();
    would.assert_done().assert_says(&["+ make slot polling_move", "dry run, nothing was changed"]);
    let (events, seconds) = volume((12_000, 15), (20_000, 20));
    let writers = site.writers(events, Duration::from_secs(seconds));
    let mut relay = std::thread::scope(|scope| {
        let writing = scope.spawn(|| writers.run().unwrap());
        wait_until("a backlog", || {
            let waiting = site.value("select count(*) from outbox where status = 'pending'");
            waiting.parse::<u64>().unwrap() > 200 && statuses(&site).contains("published")
        });
        // WHEN the table is handed over, while rows are written and published
        let handover = site.command(&polling, &["outbox", "handover"]).wait();
        handover.assert_done().assert_says(&["+ created slot polling_move"]);
        assert!(!writing.is_finished(), "the load has ended too early to prove anything");
        // THEN the pollers end by themselves, and do not begin again
        for poller in &mut pollers {
            assert_eq!(poller.wait_exit(LIMIT).unwrap(), 0, "{}", poller.tail(20));
        }
        pollers[0].restart().unwrap();
        assert_eq!(pollers[0].wait_exit(LIMIT).unwrap(), 3, "{}", pollers[0].tail(20));
        // WHEN the slot is read from there
        let cdc = walrelay_harness::relay::RelayConfig {
            source_extra: String::new(),
            key: None,
            ..polling.clone()
        };
        let relay = site.relay_with(cdc);
        writing.join().unwrap();
        relay
    });
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("{verdict}\n{}", statuses(&site));
    assert!(statuses(&site).contains("pending"), "the slot carried nothing: {}", statuses(&site));
    assert!(statuses(&site).contains("published"), "polling carried nothing");
    verdict.assert_exact(0);
    stop(&mut relay);
}

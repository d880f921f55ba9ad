//! SIGTERM: everything settles, Postgres knows it, and the next process repeats nothing.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use walrelay_harness::load::Backlog;
use walrelay_harness::proc::signal;
use walrelay_harness::relay::{RelayProcess, get};
use walrelay_harness::{BrokerKind, RabbitMq, free_port};

use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, on_both_brokers, shared_postgres, start, volume,
    wait_until, window_is_full,
};

const EXIT_LIMIT: Duration = Duration::from_secs(30);
const DRAIN_S: u32 = 2;
/// For an end without a broker, beside another test that loads the machine: the drain, Postgres' last
/// answer, connections that nobody closes at the other end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

on_both_brokers!(a_sigterm_under_load_repeats_nothing);

fn a_sigterm_under_load_repeats_nothing(kind: BrokerKind) {
    let _machine = half_machine();
    let _repeatable = Repeatable::new("e2e::stop");
    // GIVEN a relay under load
    let site = Fixture::on(kind, "stop_under_load");
    let (mut relay, reader) = (site.relay(), site.reader());
    let (events, seconds, stops) = volume((6_000, 5, 3), (40_000, 15, 5));
    let load = site.writers(events, Duration::from_secs(seconds));
    let writers = std::thread::spawn(move || load.run().unwrap());
    // WHEN it is stopped again and again, each time while events are on their way
    for _ in 0..stops {
        // On a busy machine the load may be over before the stops are.
        reader.wait_until((reader.count() + 1_000).min(events), LIMIT);
        relay.wait_ready(LIMIT).unwrap();
        relay.sigterm().unwrap();
        assert_eq!(relay.wait_exit(EXIT_LIMIT).unwrap(), 0, "{}", relay.tail(20));
        relay.restart().unwrap();
    }
    writers.join().unwrap();
    // THEN all is there, once
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("{stops} stops: {verdict}");
    verdict.assert_exact(0);
}

on_both_brokers!(a_sigterm_inside_a_large_transaction_repeats_nothing, rabbitmq in soak);

fn a_sigterm_inside_a_large_transaction_repeats_nothing(kind: BrokerKind) {
    // GIVEN a relay with a small window in the middle of a large transaction: its sender stands
    let site = Fixture::on(kind, "stop_inside");
    let mut config = site.config();
    config.extra = "[delivery]\nwindow_events_max = 500\ndrain_timeout = \"10m\"\n".into();
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    let rows = volume(40_000, 100_000);
    let sender = format!(
        "select active_pid::text from pg_replication_slots where slot_name = '{}'",
        site.name
    );
    let sender: u32 = site.value(&sender).parse().unwrap();
    Backlog { rows_per_transaction: rows, ..Backlog::new(&site.url, rows) }.fill().unwrap();
    wait_until("the first event", || reader.count() > 0);
    signal(sender, Signal::STOP).unwrap();
    let seen = reader.count();
    assert!(seen < rows, "the transaction was over before it could be interrupted");
    // WHEN it is told to stop there, by two signals at once as of GNU `timeout`
    relay.sigterm().unwrap();
    relay.sigterm().unwrap();
    wait_until("the relay hears it", || relay.said("settling what is in flight"));
    assert!(relay.is_running(), "{}", relay.tail(20));
    signal(sender, Signal::CONT).unwrap();
    // THEN it finishes the transaction first
    assert_eq!(relay.wait_exit(LIMIT * 4).unwrap(), 0, "{}", relay.tail(20));
    relay.restart().unwrap();
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("stopped after {seen} of {rows}: {verdict}");
    verdict.assert_exact(0);
}

on_both_brokers!(a_sigterm_inside_a_transaction_that_outlasts_the_drain_repeats_nothing, both in soak);

fn a_sigterm_inside_a_transaction_that_outlasts_the_drain_repeats_nothing(kind: BrokerKind) {
    let _machine = half_machine();
    let site = Fixture::on(kind, "stop_outlasted");
    // GIVEN a relay in a transaction that takes longer than it may; what a topic holds can be read,
    // and what a queue holds cannot
    let (rows, window, drain_s) = volume((40_000, 50, 2), (700_000, 4_096, 6));
    let state_file = match kind {
        BrokerKind::Kafka => "",
        BrokerKind::RabbitMq => "state_file = \"state\"\n",
    };
    let mut config = site.config();
    config.extra = format!(
        "[delivery]\n{state_file}window_events_max = {window}\ndrain_timeout = \"{drain_s}s\"\n"
    );
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    Backlog { rows_per_transaction: rows, ..Backlog::new(&site.url, rows) }.fill().unwrap();
    reader.wait_until(rows / 10, LIMIT);
    // WHEN it is told to stop there
    relay.sigterm().unwrap();
    assert_eq!(relay.wait_exit(EXIT_LIMIT).unwrap(), 0, "{}", relay.tail(20));
    let seen = reader.count();
    assert!(seen < rows, "the transaction was over before the time was");
    assert!(relay.said("stop.unfinished"), "{}", relay.tail(20));
    // THEN the next process goes on behind what was published
    relay.restart().unwrap();
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("stopped after {seen} of {rows}: {verdict}");
    verdict.assert_exact(0);
}

#[test]
#[ignore = "soak"]
fn a_sigterm_is_obeyed_although_rabbitmq_is_frozen_blocked_or_dead() {
    let mut broker = RabbitMq::start().unwrap();
    let site = Fixture::new(shared_postgres(), &broker, "stop_without_rabbitmq");
    broker.sync_declarations().unwrap();
    let _machine = half_machine();
    let mut config = site.config();
    let window: u32 = 500;
    config.extra =
        format!("[delivery]\nwindow_events_max = {window}\ndrain_timeout = \"{DRAIN_S}s\"\n");
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    type Act = fn(&mut RabbitMq) -> walrelay_harness::Result<()>;
    let harms: [(&str, Act, Act); 3] = [
        ("frozen", |broker| broker.freeze(), |broker| broker.thaw()),
        ("blocked", |broker| broker.raise_memory_alarm(), |broker| broker.clear_alarms()),
        ("dead", |broker| broker.kill9(), RabbitMq::start_again),
    ];
    for (what, harm, mend) in harms {
        for (load, code) in [(0, 0), (2_000, 1)] {
            // GIVEN a relay with nothing, or with a window full of events that nobody takes
            site.insert_event(&format!("{what}-{load}"), 1);
            site.wait_confirmed(&mut relay, LIMIT);
            harm(&mut broker).unwrap();
            if load > 0 {
                site.execute(&format!(
                    "do $$ begin for n in 1..{load} loop
                       insert into outbox values
                         (gen_random_uuid(), 'order', '{what}-of-many-' || n, 'created', '{{\"seq\": 1}}');
                       commit;
                     end loop; end $$"
                ));
                // A broker that says that it takes nothing is given nothing.
                let given = || what != "blocked" || is_ready(&relay);
                wait_until("a standstill", || window_is_full(&relay) || !given());
            }
            // WHEN it is told to stop THEN it does, and says what it leaves
            let told = Instant::now();
            relay.sigterm().unwrap();
            let exit = relay.wait_exit(LIMIT).unwrap();
            let (took, said) = (told.elapsed(), relay.tail(20));
            println!("{what}, {load} events: stopped in {took:?} with {exit}");
            assert!(took < STOP_LIMIT, "{what}: {took:?}\n{said}");
            assert!(exit == code || what == "blocked" && exit == 0, "{what}: {exit}\n{said}");
            assert!(exit == 0 || said.contains("stop.unsettled"), "{said}");
            mend(&mut broker).unwrap();
            relay.restart().unwrap();
            relay.wait_ready(LIMIT).unwrap();
        }
    }
    // THEN nothing is lost, and at most what was in flight has come twice
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("{verdict}");
    verdict.assert_exact(3 * u64::from(window));
}

on_both_brokers!(a_sigterm_while_a_broker_is_awaited_is_no_failure);

fn a_sigterm_while_a_broker_is_awaited_is_no_failure(kind: BrokerKind) {
    // GIVEN a relay that waits for the first answer of its broker
    let site = Fixture::on(kind, "stop_awaiting");
    let mut config = site.config();
    let nowhere = format!("127.0.0.1:{}", free_port().unwrap());
    match &mut config.rabbitmq {
        Some(target) => target.url = format!("amqp://{nowhere}"),
        None => config.brokers = nowhere,
    }
    let mut relay = start(config, &site.name);
    // It says so when it listens to signals, and before it opens the sink.
    wait_until("its start", || relay.said("no state file"));
    // WHEN it is told to stop THEN it does, and that is no failure
    relay.sigterm().unwrap();
    assert_eq!(relay.wait_exit(EXIT_LIMIT).unwrap(), 0, "{}", relay.tail(20));
}

fn is_ready(relay: &RelayProcess) -> bool {
    get(relay.admin(), "/readyz", LIMIT).is_ok_and(|answer| answer.status == 200)
}

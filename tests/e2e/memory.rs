//! Memory is bounded by the window (G4), whatever a transaction or a broker does.

use std::time::{Duration, Instant};

use walrelay_harness::load::Backlog;
use walrelay_harness::relay::{RelayConfig, RelayProcess};
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions, proc};
use walrelay_measure::numbers;

use crate::support::{
    Fixture, LIMIT, half_machine, metric, on_both_brokers, until, volume, wait_until,
};

/// The default in a soak run; in a quick run so small that it fills within seconds.
fn window_bytes() -> u64 {
    volume(16, 64) << 20
}

/// The memory that the process may need beside its window and its code.
const ALLOWANCE_BYTES: u64 = 32_000_000;
/// As large as the default window.
const HUGE_BYTES: u64 = 64 << 20;
/// The memory that may stay of it.
const LEFT_BYTES_MAX: u64 = 16 << 20;
const KEYS: u64 = 1_000;
/// Events of as many keys reach every partition.
const FIRST: u64 = 30;

fn config(site: &Fixture) -> RelayConfig {
    let extra = format!("[delivery]\nwindow_bytes_max = {}\n", window_bytes());
    RelayConfig { extra, ..site.config() }
}

fn assert_lean(relay: &RelayProcess) {
    let memory = proc::memory(relay.pid()).unwrap();
    // A program that was built for tests has several times as much code.
    let peak = numbers::bytes(memory.peak_rss_bytes - memory.file_bytes);
    println!("peak RSS without code {peak}");
    let most = window_bytes() + ALLOWANCE_BYTES + memory.file_bytes;
    assert!(memory.peak_rss_bytes < most, "peak RSS without code {peak}");
}

on_both_brokers!(a_transaction_larger_than_the_window_passes_through_a_small_process, rabbitmq in soak);

fn a_transaction_larger_than_the_window_passes_through_a_small_process(kind: BrokerKind) {
    let _machine = half_machine();
    let site = Fixture::on(kind, "memory_rows");
    let (mut relay, reader) = (site.relay_with(config(&site)), site.reader());
    // Several times the window, in fewer rows where it is not for the rows.
    let (rows, payload_bytes) = volume((30_000, 2_300), (1_000_000, 230));
    let load = Backlog { rows_per_transaction: rows, ..Backlog::new(&site.url, rows) };
    Backlog { payload_bytes, ..load }.fill().unwrap();
    // RabbitMQ takes a minute for them on a quiet machine, and most of ten beside other work.
    site.wait_confirmed(&mut relay, LIMIT * 8);
    let (verdict, _) = site.judge(&mut relay, reader);
    assert_lean(&relay);
    println!("{verdict}");
    verdict.assert_exact(0);
}

on_both_brokers!(a_huge_row_leaves_nothing_behind, rabbitmq in soak);

fn a_huge_row_leaves_nothing_behind(kind: BrokerKind) {
    // GIVEN a relay that builds a new value for each event
    let site = Fixture::on(kind, "memory_huge");
    let mut config = site.config();
    config.env.push(("WALRELAY_ROUTE__FORMAT".into(), "cloudevents-structured".into()));
    let mut relay = site.relay_with(config);
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    let before = proc::memory(relay.pid()).unwrap().rss_bytes;
    // WHEN a row comes that is as large as the whole window; Kafka takes only its dead letter
    site.execute(&format!(
        "insert into outbox
         values (gen_random_uuid(), 'order', 'key', 'created', to_jsonb(repeat('x', {HUGE_BYTES})))"
    ));
    site.wait_confirmed(&mut relay, LIMIT);
    // THEN it was in the process, and is there no more
    let memory = || proc::memory(relay.pid()).unwrap();
    assert!(memory().peak_rss_bytes > before + HUGE_BYTES);
    wait_until("the memory to be given back", || memory().rss_bytes < before + LEFT_BYTES_MAX);
}

#[test]
fn a_broker_frozen_for_long_does_not_grow_the_process() {
    a_standstill("memory_freeze", BrokerKind::Kafka, (freeze, thaw), 0);
}

#[test]
fn a_rabbitmq_that_blocks_for_long_does_not_grow_the_process() {
    let block: Act = |broker| match broker {
        Broker::Kafka(_) => unreachable!("Kafka has no alarms"),
        Broker::RabbitMq(rabbitmq) => rabbitmq.raise_memory_alarm(),
    };
    let unblock: Act = |broker| match broker {
        Broker::Kafka(_) => unreachable!("Kafka has no alarms"),
        Broker::RabbitMq(rabbitmq) => rabbitmq.clear_alarms(),
    };
    a_standstill("memory_blocked", BrokerKind::RabbitMq, (block, unblock), 0);
}

#[test]
#[ignore = "soak"]
fn a_rabbitmq_frozen_for_long_does_not_grow_the_process() {
    // The relay gives its connection up after two heartbeats, and publishes again what was in
    // flight: at most one event of each key.
    a_standstill("memory_freeze_rabbitmq", BrokerKind::RabbitMq, (freeze, thaw), KEYS);
}

type Act = fn(&Broker) -> walrelay_harness::Result<()>;

fn freeze(broker: &Broker) -> walrelay_harness::Result<()> {
    broker.freeze()
}

fn thaw(broker: &Broker) -> walrelay_harness::Result<()> {
    broker.thaw()
}

fn a_standstill(name: &str, kind: BrokerKind, (stop, go_on): (Act, Act), repeated_max: u64) {
    // GIVEN a relay whose broker stands still, and more than twice the window to carry
    let broker = Broker::start(kind).unwrap();
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, &broker, name);
    let (mut relay, reader) = (site.relay_with(config(&site)), site.reader());
    // Before every partition has confirmed something the window does not fill.
    (0..FIRST).for_each(|key| site.insert_event(&format!("first-{key}"), 1));
    reader.wait_until(FIRST, LIMIT);
    stop(&broker).unwrap();
    let frozen = Instant::now();
    // As many events as are in flight at first fill the window.
    let payload_bytes = window_bytes() / 200;
    Backlog { payload_bytes, keys: KEYS, ..Backlog::new(&site.url, 500) }.fill().unwrap();
    let full =
        || metric(&relay, "outbox_in_flight_bytes").is_some_and(|b| b >= window_bytes() as f64);
    // A broker that says that it takes nothing is given nothing.
    let told = || relay.said("the broker takes no messages for now");
    wait_until("a standstill", || full() || told());
    // WHEN it stands still for a while
    let freeze = Duration::from_secs(volume(20, 60));
    until("the end of the standstill", freeze * 2, || (frozen.elapsed() > freeze).then_some(()));
    go_on(&broker).unwrap();
    // THEN the process has not grown, and all arrives
    let (verdict, _) = site.judge(&mut relay, reader);
    assert_lean(&relay);
    println!("{verdict}");
    verdict.assert_exact(repeated_max);
}

//! The kill test: relay, broker and Postgres are killed again and again under load; in a soak run
//! 100,000 events and 20 kills of the relay.
//!
//! Each service has a lane of faults at times drawn from the seed; the lanes run at once, so faults
//! overlap. The seed fixes plans and load; interleaving is the machine's. What is judged does not
//! depend on it: nothing missing, invented or reordered, nothing confirmed to Postgres before the
//! broker held it, and no repetition that a kill does not explain.
//!
//! RabbitMQ has alarms raised as well, and must keep all of it in a
//! quorum queue and in a classic one at once. Its queues do not say
//! when they got a message: a tap on the relay's connection does.

mod causes;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use walrelay_harness::consumer::Record;
use walrelay_harness::faults::{Counts, Fault, Lane, Plan};
use walrelay_harness::kit::now_us;
use walrelay_harness::load::{ChaosReport, ChaosWriters};
use walrelay_harness::oracle::{ConfirmedSample, ConfirmedSampler, Verdict, check_confirmed};
use walrelay_harness::rabbit::Tap;
use walrelay_harness::relay::{RelayProcess, get};
use walrelay_harness::{Broker, BrokerKind, Postgres, RabbitMq};
use walrelay_measure::numbers;
use walrelay_measure::table::Table;

use self::causes::Moments;
use crate::support::broker::Destination;
use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, name_on, on_both_brokers, own_postgres, seed, until,
    volume, wait_until,
};

/// The most events that a kill finds in flight: small, because an outage fills any window.
const WINDOW_EVENTS: u64 = 1_000;
/// A relay withdraws what is in flight when it has no session for half of it: a crash of Postgres must
/// be over by then.
const WAL_SENDER_TIMEOUT: Duration = Duration::from_secs(6);
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// A start that finds a service dead may give up: source unusable, sink unusable.
const GAVE_UP: [i32; 2] = [4, 5];
const ALARM: Duration = Duration::from_secs(3);

/// How many events come in which time, and what breaks meanwhile.
struct Volume {
    events: u64,
    load: Duration,
    counts: Counts,
}

fn amount() -> Volume {
    let (kills, others) = volume((5, 1), (20, 3));
    Volume {
        events: volume(10_000, 100_000),
        load: Duration::from_secs(volume(20, 75)),
        counts: Counts {
            relay_kills: kills,
            terminations: kills,
            freezes: others,
            crashes: others,
            broker_kills: others,
            alarms: volume(2, 3),
        },
    }
}

#[derive(Default)]
struct Done {
    moments: Moments,
    alarms: u64,
    /// Starts that gave up because a service was dead.
    gave_up: u64,
    /// Events that were in flight when the relay was not sure of the slot any more.
    withdrawn: u64,
}

on_both_brokers!(nothing_is_lost_whatever_is_killed);

fn nothing_is_lost_whatever_is_killed(kind: BrokerKind) {
    let _repeatable = Repeatable::new("e2e::kill");
    let mut broker = Broker::start(kind).unwrap();
    let (destination, tap) = match &broker {
        Broker::Kafka(kafka) => (kafka.into(), None),
        Broker::RabbitMq(rabbitmq) => {
            let tap = Tap::start(rabbitmq.port()).unwrap();
            (Destination::tapped(rabbitmq, &tap), Some(tap))
        }
    };
    let timeout_ms = WAL_SENDER_TIMEOUT.as_millis().to_string();
    let mut postgres = own_postgres(&[("wal_sender_timeout", timeout_ms.as_str())]);
    let site = Fixture::new(&postgres, destination, &name_on(kind, "kill"));
    // The confirmed LSN is compared with what the broker held at a time.
    site.stamp_by_broker();
    broker.sync_declarations().unwrap();
    let _machine = half_machine();
    let began = Instant::now();
    // GIVEN a relay, a reader, a watch on the confirmed LSN
    let mut config = site.config();
    // With every other seed it remembers what was confirmed.
    let state_file = if seed().is_multiple_of(2) { "state_file = \"state\"\n" } else { "" };
    config.extra = format!("[delivery]\nwindow_events_max = {WINDOW_EVENTS}\n{state_file}");
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    let sampler =
        ConfirmedSampler::start(&site.url, &site.name, Duration::from_millis(50)).unwrap();
    // WHEN everything breaks under load
    let (report, mut done) = break_everything(&site, &mut relay, &mut postgres, &mut broker);
    let broken_for = began.elapsed();
    // THEN the relay catches up, and the slot's confirmed LSN reaches the tip
    until("the relay is ready", LIMIT, || {
        // The last start may have found a service dead.
        supervise(&mut relay, &mut done);
        relay.wait_ready(Duration::from_secs(1)).ok()
    });
    let caught_up = Instant::now();
    let judged = site.judge_each(&mut relay, reader);
    println!(
        "{report:?}\nbroken for {}, caught up in {}, {} in all",
        numbers::duration(broken_for),
        numbers::duration(caught_up.elapsed()),
        numbers::duration(began.elapsed())
    );
    let samples = sampler.stop();
    done.withdrawn = withdrawn(&relay);
    let reconnects = report.iter().map(|report| report.reconnects).sum();
    println!("{}", told(&done, kind.name(), reconnects));
    for (verdict, records) in judged {
        assert_kept(&verdict, records, &samples, &done, tap.as_ref());
    }
}

/// How many events the relay and its predecessors say that they withdrew.
fn withdrawn(relay: &RelayProcess) -> u64 {
    let log = std::fs::read_to_string(relay.log_file()).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["code"] == "sink.withdrawn")
        .map(|line| line["in_flight"].as_u64().unwrap())
        .sum()
}

fn told(done: &Done, broker: &str, reconnects: u64) -> Table {
    let mut table = Table::new("Kill test", ["what", "count"]);
    let mut row = |what: &str, count: u64| {
        table.row([what.to_owned(), numbers::count(count)]);
    };
    let moments = &done.moments;
    row("relay killed (-9)", moments.relay.len() as u64 - done.gave_up);
    row("relay frozen past wal_sender_timeout", moments.freezes.len() as u64);
    row("relay starts that found a service dead", done.gave_up);
    row("walsender terminated", moments.terminations.len() as u64);
    row("Postgres crashed", moments.postgres.len() as u64);
    row(&format!("{broker} killed (-9)"), moments.broker.len() as u64);
    if done.alarms > 0 {
        row(&format!("{broker} alarms, of memory and of disk"), done.alarms);
    }
    row("writers reconnected", reconnects);
    row("events withdrawn", done.withdrawn);
    table
}

fn assert_kept(
    verdict: &Verdict,
    mut records: Vec<Record>,
    samples: &[ConfirmedSample],
    done: &Done,
    tap: Option<&Tap>,
) {
    // A topic has the broker's time already.
    if let Some(tap) = tap {
        tap.stamp_confirmed(&mut records);
    }
    let confirmed = check_confirmed(samples, &records);
    if let Some(tap) = tap {
        tap.stamp_published(&mut records);
    }
    let causes = causes::explain(&records, &done.moments);
    let mut table = Table::new("", ["what", "count"]);
    let mut row = |what: &str, count: u64| {
        table.row([what.to_owned(), numbers::count(count)]);
    };
    row("events committed", verdict.committed);
    row("duplicates in all", verdict.duplicates);
    row("  after a kill of the relay", causes.relay);
    row("    of them in large transactions that it cut", causes.in_large_transactions());
    row("  after a kill of the relay and a crash of Postgres", causes.relay_and_postgres);
    row("  after a freeze of the relay", causes.frozen);
    row("  after a kill of the broker alone", causes.broker);
    row("  after a fault of Postgres alone", causes.source);
    row("  without a cause", causes.unexplained);
    println!("{table}{verdict}{confirmed}");
    verdict.assert_complete();
    let ordinary = causes.relay - causes.in_large_transactions() + causes.frozen + causes.broker;
    // What a kill may repeat is what it finds in flight: how much of the window that is, is the
    // machine's.
    let Moments { relay, freezes, broker, .. } = &done.moments;
    let kills = (relay.len() + freezes.len() + broker.len()) as u64;
    assert!(ordinary <= kills * WINDOW_EVENTS, "{ordinary} duplicates");
    confirmed.assert_clean();
    // What is in flight is withdrawn when Postgres gives no sign for half of `wal_sender_timeout`, and then
    // published again. Nothing else is repeated because of Postgres.
    let (source, withdrawn) = (causes.source, done.withdrawn.min(WINDOW_EVENTS));
    assert!(source <= withdrawn, "{source} after a fault of Postgres alone, {withdrawn} withdrawn");
    assert_eq!(causes.unexplained, 0, "{:?}", causes.first_unexplained);
}

/// Runs the load and all lanes until the load is done and every fault has happened.
fn break_everything(
    site: &Fixture,
    relay: &mut RelayProcess,
    postgres: &mut Postgres,
    broker: &mut Broker,
) -> ([ChaosReport; 2], Done) {
    let Volume { load, counts, .. } = amount();
    let alarms = if matches!(broker, Broker::RabbitMq(_)) { counts.alarms } else { 0 };
    let plan = Plan::draw(seed(), load, &Counts { alarms, ..counts });
    // Both loads would make it at once.
    site.execute("create table keys (key text primary key, seq bigint not null)");
    let (many, few) = loads(site);
    let (over, alive, admin) = (AtomicBool::new(false), Mutex::new(()), relay.admin());
    std::thread::scope(|scope| {
        let Plan { relay: relay_lane, postgres: postgres_lane, broker: broker_lane } = &plan;
        let relays = scope.spawn(|| on_relay(site, relay, relay_lane, &alive, &over));
        let postgreses = scope.spawn(|| on_postgres(site, postgres, postgres_lane, &alive, admin));
        let brokers = scope.spawn(|| on_broker(broker, broker_lane));
        let large = scope.spawn(move || few.run());
        let report = many.run();
        let large = large.join().unwrap();
        let (postgreses, brokers) = (postgreses.join(), brokers.join());
        over.store(true, Ordering::Relaxed);
        let mut done = relays.join().unwrap();
        (done.moments.terminations, done.moments.postgres) = postgreses.unwrap();
        (done.alarms, done.moments.broker) = brokers.unwrap();
        ([report.unwrap(), large.unwrap()], done)
    })
}

/// Most events in small transactions, a fifth in transactions of up to 10,000 rows; the same keys.
fn loads(site: &Fixture) -> (ChaosWriters, ChaosWriters) {
    let Volume { events, load, .. } = amount();
    let writers = |events, writers, rows_max, seed| ChaosWriters {
        writers,
        rows_max,
        last: Some(load),
        ..ChaosWriters::new(&site.url, events, seed)
    };
    let few = events / 5;
    (writers(events - few, 6, 150, seed()), writers(few, 2, 10_000, !seed()))
}

/// Kills and freezes the relay, and like any supervisor starts it again when it gives up.
/// It waits out `alive`: see [`crash`].
fn on_relay(
    site: &Fixture,
    relay: &mut RelayProcess,
    lane: &Lane,
    alive: &Mutex<()>,
    over: &AtomicBool,
) -> Done {
    let began = Instant::now();
    let mut done = Done::default();
    for (due, fault) in lane {
        let _alive = until("the next fault of the relay", LIMIT * 2, || {
            supervise(relay, &mut done);
            if began.elapsed() >= *due { alive.try_lock().ok() } else { None }
        });
        match fault {
            Fault::Freeze => {
                let frozen_us = now_us();
                freeze(site, relay);
                done.moments.freezes.push((frozen_us, now_us()));
            }
            _ => {
                done.moments.relay.push(now_us());
                relay.restart().unwrap();
            }
        }
    }
    until("the end of all faults", LIMIT * 2, || {
        supervise(relay, &mut done);
        over.load(Ordering::Relaxed).then_some(())
    });
    done
}

fn supervise(relay: &mut RelayProcess, done: &mut Done) {
    if relay.is_running() {
        return;
    }
    let code = relay.wait_exit(Duration::ZERO).unwrap();
    assert!(GAVE_UP.contains(&code), "the relay ended with {code}\n{}", relay.tail(40));
    done.gave_up += 1;
    done.moments.relay.push(now_us());
    relay.restart().unwrap();
}

/// Stops the relay's clock until Postgres has given its connection up, which it does not when the
/// walsender was terminated meanwhile: that one says so first, and waits for ever to be heard.
fn freeze(site: &Fixture, relay: &mut RelayProcess) {
    if relay.freeze().is_err() {
        return;
    }
    let frozen = Instant::now();
    wait_until("wal_sender_timeout", || {
        let frozen_for = frozen.elapsed();
        let free = site.slot_is_active() == Some(false);
        frozen_for > WAL_SENDER_TIMEOUT && free || frozen_for > FREEZE_MAX
    });
    // It may have given up meanwhile.
    let _gone = relay.thaw().is_err();
}

fn on_postgres(
    site: &Fixture,
    postgres: &mut Postgres,
    lane: &Lane,
    alive: &Mutex<()>,
    admin: SocketAddr,
) -> (Vec<i64>, Vec<i64>) {
    let began = Instant::now();
    let (mut terminated_us, mut crashes_us) = (Vec::new(), Vec::new());
    for (due, fault) in lane {
        until("the next fault of Postgres", LIMIT * 2, || (began.elapsed() >= *due).then_some(()));
        match fault {
            Fault::Crash => crashes_us.push(crash(site, postgres, alive, admin)),
            _ => {
                terminated_us.push(now_us());
                wait_until("a walsender", || site.terminate_walsender());
            }
        }
    }
    (terminated_us, crashes_us)
}

/// Crashes Postgres while the relay lives. It comes back with a slot that it saved up to half a
/// minute ago; a relay that has streamed knows better, and is kept alive until it has said so.
/// What happens when both are gone has a test of its own.
fn crash(site: &Fixture, postgres: &mut Postgres, alive: &Mutex<()>, admin: SocketAddr) -> i64 {
    let metrics = || Some(get(admin, "/metrics", Duration::from_secs(1)).ok()?.body);
    let (_alive, confirmed) = until("a relay that streams", LIMIT, || {
        let guard = alive.try_lock().ok()?;
        metrics()?.contains("\noutbox_connected 1\n").then_some(())?;
        Some((guard, site.confirmed()?))
    });
    let crashed_us = now_us();
    postgres.crash().unwrap();
    postgres.start_again().unwrap();
    until("the slot to be put right", LIMIT, || (site.confirmed()? >= confirmed).then_some(()));
    crashed_us
}

fn on_broker(broker: &mut Broker, lane: &Lane) -> (u64, Vec<i64>) {
    let began = Instant::now();
    let (mut alarms, mut killed_us) = (0, Vec::new());
    for (due, fault) in lane {
        until("the next fault of the broker", LIMIT * 2, || {
            (began.elapsed() >= *due).then_some(())
        });
        match (fault, &*broker) {
            (Fault::Alarm, Broker::RabbitMq(rabbitmq)) => {
                alarm(rabbitmq, alarms);
                alarms += 1;
            }
            _ => {
                killed_us.push(now_us());
                broker.kill9().unwrap();
                broker.start_again().unwrap();
            }
        }
    }
    (alarms, killed_us)
}

/// Memory, disk, memory, each for a while.
fn alarm(rabbitmq: &RabbitMq, number: u64) {
    match number % 2 {
        0 => rabbitmq.raise_memory_alarm().unwrap(),
        _ => rabbitmq.raise_disk_alarm().unwrap(),
    }
    let raised = Instant::now();
    until("the end of the alarm", ALARM * 2, || (raised.elapsed() >= ALARM).then_some(()));
    rabbitmq.clear_alarms().unwrap();
}

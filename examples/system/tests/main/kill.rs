//! The kill test of the whole system: orders go through the three services while each of them, the
//! relay, the broker and Postgres are killed again and again; in a soak run 20,000 orders under 30 kills.
//!
//! Each part has a lane of kills at times drawn from the seed; the lanes run at once. What is judged is in
//! the databases of the services: each order has one notification and one invoice, each event was
//! handled once, and those of an order in their order. Some orders are poison to the billing service:
//! they are dead letters, and a replay makes up for them. Flaky payments go through the retry levels, and
//! after each start its payment provider is down for a while, so that its lanes are held. No service may end
//! by itself.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use walrelay_harness::kit::{Rng, volume};
use walrelay_harness::relay::RelayProcess;
use walrelay_harness::system::{
    BILLING, Effects, NOTIFICATIONS, OF_BILLING, OrderLoad, OrderReport, Payments, Service, System,
    SystemOptions, effects,
};
use walrelay_harness::{Broker, BrokerKind, Postgres};
use walrelay_measure::numbers;

const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
/// Between two comparisons of all that there is.
const LOOK: Duration = Duration::from_millis(500);
/// More levels than a flaky payment can use up.
const LEVELS: &str = "1s,2s,4s,8s";
/// How the billing service is started before it is fixed.
const PROVIDER_IS_DOWN: [&str; 2] = ["--down-for", "1500ms"];

/// How often each part is killed.
struct Kills {
    each_service: usize,
    relay: usize,
    broker: usize,
    postgres: usize,
}

fn kills() -> Kills {
    let (each_service, others) = volume((1, 1), (5, 5));
    Kills { each_service, relay: others, broker: others, postgres: others }
}

fn load(system: &System) -> OrderLoad {
    OrderLoad {
        service: system.orders.address(),
        orders: volume(1_000, 20_000),
        clients: 8,
        last: Duration::from_secs(volume(12, 240)),
        payments: Payments { poison: 10, flaky: 20, slow: 10 },
        seed: seed(),
    }
}

/// `WALRELAY_SEED`, or one of the clock.
fn seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("WALRELAY_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| walrelay_harness::kit::now_us().unsigned_abs());
        println!("WALRELAY_SEED={seed} repeats the plan");
        seed
    })
}

/// Both tests load the machine.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
#[ignore = "soak"]
fn every_order_has_one_effect_on_kafka() {
    every_order_has_one_effect(BrokerKind::Kafka);
}

#[test]
#[ignore = "soak"]
fn every_order_has_one_effect_on_rabbitmq() {
    every_order_has_one_effect(BrokerKind::RabbitMq);
}

fn every_order_has_one_effect(broker: BrokerKind) {
    let _machine = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let began = Instant::now();
    // GIVEN the system, with a payment provider that is down at first
    let options = SystemOptions { broker, levels: LEVELS, traced: false };
    let mut system = System::start(&options).unwrap();
    system.broker.sync_declarations().unwrap();
    system.billing.start_with(&PROVIDER_IS_DOWN).unwrap();
    system.billing.wait_ready(LIMIT).unwrap();
    println!("{}: started in {}", broker.name(), numbers::duration(began.elapsed()));
    // WHEN each part of it is killed under load
    let load = load(&system);
    let (report, killed) = break_everything(&mut system, &load);
    println!("{report:?}, {killed} kills");
    system.wait_ready().unwrap();
    // THEN all has come to what it should, but for what is poison
    let broken = Instant::now();
    let found =
        wait_effects(&mut system, "all but what is poison", Effects::are_exact_but_for_poison);
    println!("{found}  settled in {}", numbers::duration(broken.elapsed()));
    assert_eq!(found.orders, load.orders);
    assert!(system.billing.said("the payment provider is down"), "no lane was held");
    // THEN the dead letters are the poison, and nothing else
    system.wait_settled(LIMIT).unwrap();
    assert!(!found.poison.is_empty());
    assert_eq!(dead_letters(&system), found.poison);
    // WHEN the billing service is fixed, and its dead letters are replayed
    system.billing.start_with(&["--fixed"]).unwrap();
    system.billing.wait_ready(LIMIT).unwrap();
    let repeated = duplicates(&system.notifications);
    let said =
        system.commands().run(&[&["dlq", "replay", "--all"][..], &OF_BILLING].concat()).unwrap();
    println!("{said}");
    // THEN each order has one notification and one invoice, and nothing is left to be handled
    let found = wait_effects(&mut system, "all", Effects::are_exact);
    system.wait_settled(LIMIT).unwrap();
    if broker == BrokerKind::Kafka {
        // The other consumer reads the same topic: what was replayed is a repetition there.
        let seen = duplicates(&system.notifications) - repeated;
        assert!(seen >= found.poison.len() as f64, "{seen} of {}", found.poison.len());
    }
    // WHEN the services stop THEN nothing has been done twice
    for service in [&mut system.orders, &mut system.notifications, &mut system.billing] {
        service.sigterm().unwrap();
        assert_eq!(service.wait_exit(LIMIT).unwrap(), 0, "{}", service.tail(20));
    }
    assert_eq!(effects(&system.postgres).unwrap(), found);
    println!("{found}  {} in all", numbers::duration(began.elapsed()));
}

/// The orders whose events are dead letters of the billing service.
fn dead_letters(system: &System) -> BTreeSet<String> {
    let list = [&["dlq", "list", "--json"][..], &OF_BILLING].concat();
    let listed = system.commands().run(&list).unwrap();
    let key = |line: &str| {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        letter["key"].as_str().unwrap().to_owned()
    };
    listed.lines().map(key).collect()
}

/// How many repetitions a consumer has recognised since its start.
fn duplicates(consumer: &Service) -> f64 {
    let metrics = consumer.metrics().unwrap();
    let mut found =
        metrics.iter().filter(|(name, _)| name.starts_with("consumer_duplicates_total"));
    *found.next().unwrap().1
}

/// Compares again and again, until it is as wanted.
#[track_caller]
fn wait_effects(system: &mut System, what: &str, wanted: fn(&Effects) -> bool) -> Effects {
    let limit = volume(LIMIT, 4 * LIMIT);
    let began = Instant::now();
    loop {
        let found = effects(&system.postgres).unwrap();
        if wanted(&found) {
            return found;
        }
        assert!(!found.are_wrong_for_good(), "{found}");
        let (notified, billed) = (&mut system.notifications, &mut system.billing);
        assert!(notified.is_running() && billed.is_running(), "a consumer has ended");
        assert!(
            began.elapsed() < limit,
            "not within {limit:?}: {what}\n{found}\n{}\nbilling:\n{}\nnotification:\n{}\nrelay:\n{}",
            deferred(&system.postgres),
            billed.tail(20),
            notified.tail(20),
            system.relay.tail(20)
        );
        std::thread::sleep(LOOK);
    }
}

/// The messages that wait, as the inboxes know them.
fn deferred(postgres: &Postgres) -> String {
    let sql = "select string_agg(format('%s copy %s attempts %s level %s, settled: %s', row.message_id, row.copy,
            row.attempts, row.level, done.processed_at is not null), E'\\n' order by row.position)
        from deferred_messages row left join processed_messages done using (consumer, message_id)";
    let of = |database| postgres.sql(database, sql).unwrap_or_else(|error| error.to_string());
    format!("deferred by billing:\n{}\nby notification:\n{}", of(BILLING), of(NOTIFICATIONS))
}

/// Times over the time of the load, in order.
fn lane(part: u64, kills: usize, load: Duration) -> Vec<Duration> {
    let mut rng = Rng::fork(seed(), 1_000_000 + part);
    let mut lane: Vec<Duration> =
        (0..kills).map(|_| load.mul_f64(0.05 + 0.9 * rng.unit())).collect();
    lane.sort();
    lane
}

/// Runs the load, and the lanes until the load is done and every kill has happened.
fn break_everything(system: &mut System, load: &OrderLoad) -> (OrderReport, u64) {
    let (kills, over, killed) = (kills(), AtomicBool::new(false), AtomicU64::new(0));
    let (began, last, gave_up) = (Instant::now(), load.last, Mutex::default());
    let System { orders, notifications, billing, relay, broker, postgres, .. } = system;
    let (over, killed, gave_up) = (&over, &killed, &gave_up);
    let report = std::thread::scope(|scope| {
        let mut lanes = Vec::new();
        for (part, service) in [orders, notifications, billing].into_iter().enumerate() {
            let mut lane = lane(part as u64, kills.each_service, last).into_iter().peekable();
            scope.spawn(move || {
                each(began, over, &mut lane, |due| on_service(service, due, killed, gave_up));
            });
        }
        let mut relays = lane(3, kills.relay, last).into_iter().peekable();
        scope.spawn(move || each(began, over, &mut relays, |due| on_relay(relay, due, killed)));
        let brokers = lane(4, kills.broker, last);
        lanes.push(scope.spawn(move || on_broker(broker, began, &brokers, killed)));
        let postgreses = lane(5, kills.postgres, last);
        lanes.push(scope.spawn(move || on_postgres(postgres, began, &postgreses, killed)));
        let report = load.run();
        let ended: Vec<_> = lanes.into_iter().map(|lane| lane.join()).collect();
        // First, or the other lanes would never end.
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|lane| lane.unwrap());
        report.unwrap()
    });
    let gave_up = gave_up.lock().unwrap();
    assert!(gave_up.is_empty(), "an outage has ended a service:\n{}", gave_up.join("\n\n"));
    (report, killed.load(Ordering::Relaxed))
}

/// Looks after a part until all is over; `look` is told when a kill is due.
fn each(
    began: Instant,
    over: &AtomicBool,
    lane: &mut std::iter::Peekable<impl Iterator<Item = Duration>>,
    mut look: impl FnMut(bool),
) {
    while !over.load(Ordering::Relaxed) || lane.peek().is_some() {
        look(lane.next_if(|due| began.elapsed() >= *due).is_some());
        std::thread::sleep(POLL);
    }
    look(false);
}

/// Kills a service when that is due. One that has ended by itself is noted, and started again so that the
/// rest of the run can be judged.
fn on_service(service: &mut Service, due: bool, killed: &AtomicU64, gave_up: &Mutex<Vec<String>>) {
    if !service.is_running() {
        gave_up.lock().unwrap().push(service.tail(3));
    } else if due {
        killed.fetch_add(1, Ordering::Relaxed);
    } else {
        return;
    }
    service.restart().unwrap();
}

fn on_relay(relay: &mut RelayProcess, due: bool, killed: &AtomicU64) {
    if due {
        killed.fetch_add(1, Ordering::Relaxed);
        relay.restart().unwrap();
    } else if !relay.is_running() {
        // It found a service dead.
        relay.restart().unwrap();
    }
}

fn on_broker(broker: &mut Broker, began: Instant, lane: &[Duration], killed: &AtomicU64) {
    for due in lane {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        broker.kill9().unwrap();
        broker.start_again().unwrap();
        killed.fetch_add(1, Ordering::Relaxed);
    }
}

fn on_postgres(postgres: &mut Postgres, began: Instant, lane: &[Duration], killed: &AtomicU64) {
    for due in lane {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        postgres.kill9().unwrap();
        postgres.start_again().unwrap();
        killed.fetch_add(1, Ordering::Relaxed);
    }
}

//! Parts that the tests share: one Postgres and one broker of each kind per run, and a [`Fixture`]
//! for each test.
//!
//! A fixture has a database, a slot and a topic or queue of its own, so tests do not affect each
//! other. A test that harms a service starts its own. Waiting is polling for a fact, with a limit
//! that only a failure reaches.

pub(crate) mod broker;
pub(crate) mod faults;
pub(crate) mod rabbitmq;
pub(crate) mod session;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use walrelay_harness::consumer::Record;
pub(crate) use walrelay_harness::kit::volume;
use walrelay_harness::load::{self, ChaosWriters};
use walrelay_harness::oracle::{self, Verdict};
use walrelay_harness::relay::{RelayConfig, RelayProcess, get};
use walrelay_harness::{BrokerKind, Kafka, Postgres, PostgresOptions, RabbitMq};

use self::broker::{Destination, Reader};
use self::faults::Relay;
pub(crate) use self::session::query;
use self::session::query_again;

/// Longest wait for anything that should happen soon.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
/// Between two looks: first, and at most.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(50);

/// The Postgres that no test harms.
pub(crate) fn shared_postgres() -> &'static Postgres {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    POSTGRES.get_or_init(|| {
        own_postgres(&[
            ("max_connections", "400"),
            ("max_wal_senders", "100"),
            ("max_replication_slots", "300"),
            ("max_prepared_transactions", "20"),
            ("track_commit_timestamp", "on"),
        ])
    })
}

/// A Postgres of the test's own, with these settings.
pub(crate) fn own_postgres(settings: &[(&str, &str)]) -> Postgres {
    let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Postgres::start(PostgresOptions { settings, ..PostgresOptions::default() }).unwrap()
}

/// The Kafka that no test harms.
pub(crate) fn shared_kafka() -> &'static Kafka {
    static KAFKA: OnceLock<Kafka> = OnceLock::new();
    KAFKA.get_or_init(|| Kafka::start().unwrap())
}

/// The RabbitMQ that no test harms.
pub(crate) fn shared_rabbitmq() -> &'static RabbitMq {
    static RABBITMQ: OnceLock<RabbitMq> = OnceLock::new();
    RABBITMQ.get_or_init(|| RabbitMq::start().unwrap())
}

/// Halves of the machine that no test holds.
static FREE_HALVES: Mutex<u32> = Mutex::new(2);
static HALF_FREED: Condvar = Condvar::new();

/// A part of the machine, held by a test that loads it.
pub(crate) struct MachineShare {
    halves: u32,
}

/// For a test that loads the machine and asserts no time.
pub(crate) fn half_machine() -> MachineShare {
    machine(1)
}

/// For a test that asserts a time: none that loads the machine runs beside it.
pub(crate) fn whole_machine() -> MachineShare {
    machine(2)
}

/// Waits for all halves at once, so that no two tests wait for each other.
fn machine(halves: u32) -> MachineShare {
    let free = FREE_HALVES.lock().unwrap_or_else(PoisonError::into_inner);
    let enough = HALF_FREED.wait_while(free, |free| *free < halves);
    *enough.unwrap_or_else(PoisonError::into_inner) -= halves;
    MachineShare { halves }
}

impl Drop for MachineShare {
    fn drop(&mut self) {
        *FREE_HALVES.lock().unwrap_or_else(PoisonError::into_inner) += self.halves;
        HALF_FREED.notify_all();
    }
}

/// Waits until so many sessions of relays have looked at the slot from now on: the slot watch of each
/// has one, and a relay that stands by another one.
#[track_caller]
pub(crate) fn wait_looks(site: &Fixture, sessions: usize) {
    let now = site.value("select clock_timestamp()");
    let looked = format!(
        "select (count(*) >= {sessions})::text from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()
         and query like '%relay of slot %' and query_start > '{now}'"
    );
    wait_until("looks at the slot", || site.value(&looked) == "true");
}

/// Polls until `look` finds something.
#[track_caller]
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        rest(began);
    }
}

/// Polls until this holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, LIMIT, || holds().then_some(()));
}

/// Sleeps before the next look: the longer the wait so far, the longer.
fn rest(began: Instant) {
    std::thread::sleep((began.elapsed() / 16).clamp(POLL_MIN, POLL_MAX));
}

/// Declares two tests for a function, `NAME::kafka` and `NAME::rabbitmq`, which call it with the kind of
/// broker. `make test` runs both, one of them, or none; `make soak` runs both.
macro_rules! on_both_brokers {
    ($test:ident) => {
        on_both_brokers!(@$test [] []);
    };
    ($test:ident, rabbitmq in soak) => {
        on_both_brokers!(@$test [] [#[ignore = "soak"]]);
    };
    ($test:ident, kafka in soak) => {
        on_both_brokers!(@$test [#[ignore = "soak"]] []);
    };
    ($test:ident, both in soak) => {
        on_both_brokers!(@$test [#[ignore = "soak"]] [#[ignore = "soak"]]);
    };
    (@$test:ident [$($kafka:tt)*] [$($rabbitmq:tt)*]) => {
        mod $test {
            #[test]
            $($kafka)*
            fn kafka() {
                super::$test(walrelay_harness::BrokerKind::Kafka);
            }

            #[test]
            $($rabbitmq)*
            fn rabbitmq() {
                super::$test(walrelay_harness::BrokerKind::RabbitMq);
            }
        }
    };
}
pub(crate) use on_both_brokers;

/// The name of a fixture that exists once for each kind of broker.
pub(crate) fn name_on(kind: BrokerKind, name: &str) -> String {
    format!("{name}_{}", kind.name().to_lowercase())
}

pub(crate) struct Fixture {
    /// Database, slot, and topic or exchange, routing key and queue.
    pub(crate) name: String,
    pub(crate) url: String,
    destination: Destination,
}

impl Fixture {
    /// Makes database, outbox, publication, slot, and what the broker needs.
    pub(crate) fn new(
        postgres: &Postgres,
        destination: impl Into<Destination>,
        name: &str,
    ) -> Fixture {
        postgres.create_database(name).unwrap();
        let (url, destination) = (postgres.url(name), destination.into());
        load::create_outbox(&url, "public.outbox").unwrap();
        load::create_slot(&url, "walrelay", name, "public.outbox").unwrap();
        destination.prepare(name);
        Fixture { name: name.into(), url, destination }
    }

    /// The same database and slot, with everything that the broker needs made at another one.
    pub(crate) fn moved_to(&self, destination: impl Into<Destination>) -> Fixture {
        let destination = destination.into();
        destination.prepare(&self.name);
        Fixture { name: self.name.clone(), url: self.url.clone(), destination }
    }

    pub(crate) fn shared(name: &str) -> Fixture {
        Fixture::new(shared_postgres(), shared_kafka(), name)
    }

    /// A fixture on the shared Postgres and the shared broker of this kind.
    pub(crate) fn on(kind: BrokerKind, name: &str) -> Fixture {
        Fixture::new(shared_postgres(), kind, &name_on(kind, name))
    }

    pub(crate) fn kind(&self) -> BrokerKind {
        self.destination.kind()
    }

    pub(crate) fn config(&self) -> RelayConfig {
        RelayConfig {
            slot: self.name.clone(),
            topic: self.name.clone(),
            env: vec![("NO_COLOR".into(), "1".into())],
            ..self.destination.config(&self.url, &self.name)
        }
    }

    pub(crate) fn relay(&self) -> RelayProcess {
        self.relay_with(self.config())
    }

    /// A relay of another configuration, ready.
    pub(crate) fn relay_with(&self, config: RelayConfig) -> RelayProcess {
        let mut relay = start(config, &self.name);
        relay.wait_ready(LIMIT).unwrap();
        relay
    }

    /// Reads what has arrived since the beginning.
    pub(crate) fn reader(&self) -> Reader {
        self.destination.reader(&self.name)
    }

    /// See [`Destination::stamp_by_broker`].
    pub(crate) fn stamp_by_broker(&self) {
        self.destination.stamp_by_broker(&self.name);
    }

    /// Makes a topic, or a queue of that name bound to the fixture's exchange.
    pub(crate) fn open_route(&self, topic: &str) {
        self.destination.open_route(&self.name, topic);
    }

    /// Lets a destination that was made take nothing larger.
    pub(crate) fn limit_route(&self, topic: &str, bytes_max: u64) {
        self.destination.limit_route(&self.name, topic, bytes_max);
    }

    pub(crate) fn reader_of(&self, topic: &str) -> Reader {
        self.destination.reader(topic)
    }

    pub(crate) fn remove_dead_letters(&self) {
        self.destination.remove_dead_letters(&self.name);
    }

    /// Writers of small and middling transactions, spread over `last`.
    pub(crate) fn writers(&self, events: u64, last: Duration) -> ChaosWriters {
        let (rows_max, last) = (2_000, Some(last));
        ChaosWriters { rows_max, last, ..ChaosWriters::new(&self.url, events, seed()) }
    }

    /// Runs `walrelay WORDS` with this configuration, beside the relays that are running.
    pub(crate) fn command(&self, config: &RelayConfig, words: &[&str]) -> Relay {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("commands").join(&self.name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{}.toml", COUNT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, config.toml(([127, 0, 0, 1], 0).into())).unwrap();
        Relay::spawn(&folder, &file, words, &config.env)
    }

    pub(crate) fn execute(&self, sql: &str) {
        load::execute(&self.url, sql).unwrap();
    }

    pub(crate) fn value(&self, sql: &str) -> String {
        query_again(&self.url, sql).unwrap().unwrap_or_default()
    }

    pub(crate) fn insert_event(&self, key: &str, seq: u64) {
        self.execute(&format!(
            "insert into outbox values (gen_random_uuid(), 'order', '{key}', 'created',
             '{{\"seq\": {seq}}}')"
        ));
    }

    /// Inserts one transaction of so many events of so many keys, from this number on.
    pub(crate) fn insert_transaction(&self, from: u64, events: u64, keys: u64) {
        let end = from + events;
        self.execute(&format!(
            "insert into outbox select gen_random_uuid(), 'order', 'key' || n % {keys}, 'created',
                 jsonb_build_object('seq', n / {keys} + 1)
             from generate_series({from}, {end} - 1) n"
        ));
    }

    /// Terminates the slot's walsender; false when there is none, or no Postgres.
    pub(crate) fn terminate_walsender(&self) -> bool {
        let sql = format!(
            "select pg_terminate_backend(active_pid)::text from pg_replication_slots
             where slot_name = '{}' and active_pid is not null",
            self.name
        );
        matches!(query_again(&self.url, &sql), Ok(Some(told)) if told == "true")
    }

    /// Whether somebody streams from the slot; none while Postgres is away.
    pub(crate) fn slot_is_active(&self) -> Option<bool> {
        let sql = format!(
            "select active::text from pg_replication_slots where slot_name = '{}'",
            self.name
        );
        query_again(&self.url, &sql).ok().flatten().map(|active| active == "true")
    }

    /// The slot's confirmed LSN, as a number; none while Postgres is away.
    pub(crate) fn confirmed(&self) -> Option<u64> {
        let sql = format!(
            "select (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint::text
             from pg_replication_slots where slot_name = '{}'",
            self.name
        );
        query_again(&self.url, &sql).ok().flatten()?.parse().ok()
    }

    /// Waits until the slot is confirmed up to where the WAL ends now; says how long that took.
    #[track_caller]
    pub(crate) fn wait_confirmed(&self, relay: &mut RelayProcess, limit: Duration) -> Duration {
        let tip = self.value("select pg_current_wal_lsn()");
        let sql = format!(
            "select (confirmed_flush_lsn >= '{tip}')::text from pg_replication_slots
             where slot_name = '{}'",
            self.name
        );
        let began = Instant::now();
        while !matches!(query_again(&self.url, &sql), Ok(Some(told)) if told == "true") {
            assert!(relay.is_running(), "the relay has ended\n{}", relay.tail(30));
            let (name, waited) = (&self.name, began.elapsed());
            assert!(
                waited < limit,
                "not within {limit:?}: {name} confirmed up to {tip}\n{}",
                relay.tail(30)
            );
            rest(began);
        }
        began.elapsed()
    }

    /// Waits until all is confirmed, then compares exactly. What the slot says is confirmed must be
    /// at the broker by now: nothing is waited for beyond that.
    #[track_caller]
    pub(crate) fn judge(&self, relay: &mut RelayProcess, reader: Reader) -> (Verdict, Vec<Record>) {
        self.judge_each(relay, reader).swap_remove(0)
    }

    /// The same for each queue there is: every one of them must hold everything.
    #[track_caller]
    pub(crate) fn judge_each(
        &self,
        relay: &mut RelayProcess,
        reader: Reader,
    ) -> Vec<(Verdict, Vec<Record>)> {
        // A whole load may be left, behind a narrow window, on a machine that is busy.
        self.wait_confirmed(relay, 4 * LIMIT);
        self.compare_each(reader)
    }

    /// Compares what is committed with what the broker holds now.
    pub(crate) fn compare(&self, reader: Reader) -> (Verdict, Vec<Record>) {
        self.compare_each(reader).swap_remove(0)
    }

    fn compare_each(&self, reader: Reader) -> Vec<(Verdict, Vec<Record>)> {
        let truth = oracle::read_truth(&self.url, "public.outbox").unwrap();
        let held = reader.finish();
        let judged = held.into_iter().map(|records| {
            let verdict = oracle::check(&truth, &records, &HashSet::new());
            (verdict, records)
        });
        judged.collect()
    }
}

/// Starts a relay that need not become ready; `name` is its folder's. `WALRELAY_BIN` puts another
/// binary under test: an older one, or one broken on purpose.
pub(crate) fn start(config: RelayConfig, name: &str) -> RelayProcess {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("relays").join(name);
    // What an earlier run said would only confuse.
    drop(std::fs::remove_dir_all(&folder));
    let binary = std::env::var_os("WALRELAY_BIN").map(PathBuf::from);
    let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_walrelay").into());
    RelayProcess::start(&binary, &folder, config).unwrap()
}

pub(crate) fn metric(relay: &RelayProcess, name: &str) -> Option<f64> {
    relay.metrics().ok()?.get(name).copied()
}

/// Stops it as an operator would; it must settle and exit 0.
#[track_caller]
pub(crate) fn stop(relay: &mut RelayProcess) {
    relay.sigterm().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 0, "{}", relay.tail(20));
}

/// The state that `/metrics` shows; empty while the relay does not answer.
pub(crate) fn state(relay: &RelayProcess) -> String {
    let metrics = relay.metrics().unwrap_or_default();
    let mut up = metrics.iter().filter(|(_, value)| **value == 1.0).filter_map(|(name, _)| {
        name.strip_prefix("outbox_state{state=\"")?.strip_suffix("\"}").map(str::to_owned)
    });
    up.next().unwrap_or_default()
}

/// The document of `/status`.
pub(crate) fn status(relay: &RelayProcess) -> serde_json::Value {
    let answer = get(relay.admin(), "/status", Duration::from_secs(2)).unwrap();
    serde_json::from_str(&answer.body).unwrap()
}

/// As many events are in flight as the relay lets out at present.
pub(crate) fn window_is_full(relay: &RelayProcess) -> bool {
    let limit = metric(relay, "outbox_in_flight_limit").filter(|limit| *limit > 0.0);
    limit.is_some() && metric(relay, "outbox_in_flight_events") >= limit
}

/// The seed of this run: `WALRELAY_SEED`, else drawn once.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("WALRELAY_SEED") {
        Ok(text) => text.parse().expect("WALRELAY_SEED is a number"),
        Err(_) => u64::try_from(walrelay_harness::kit::now_us()).unwrap() % 1_000_000,
    })
}

/// Tells how to repeat a test: at its start, and again when it fails.
pub(crate) struct Repeatable(&'static str);

impl Repeatable {
    pub(crate) fn new(test: &'static str) -> Repeatable {
        let told = Repeatable(test);
        println!("{}", told.command());
        told
    }

    fn command(&self) -> String {
        let (seed, test) = (seed(), self.0);
        format!(
            "seed {seed}; repeat it with: WALRELAY_SEED={seed} cargo test --test main {test} -- --include-ignored --nocapture"
        )
    }
}

impl Drop for Repeatable {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {}", self.command());
        }
    }
}

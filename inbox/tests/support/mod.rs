//! Parts that tests of all brokers share: services, a database, and a handler that does what a
//! message says.

mod fixture;
pub(crate) mod killed;
mod script;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use walrelay_harness::{Postgres, PostgresOptions};
use walrelay_inbox::{Inbox, InboxError, Settings};

pub(crate) use fixture::{Fixture, Letter, TestBroker, settings};
pub(crate) use script::{Calls, Script};

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
/// Retry levels of the tests.
pub(crate) const LEVELS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(600), Duration::from_secs(1)];

/// The table that handlers write to.
pub(crate) const HANDLED: &str = "CREATE TABLE handled
    (position bigint GENERATED ALWAYS AS IDENTITY, message_id text, message_key text)";

pub(crate) fn shared_postgres() -> &'static Postgres {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    POSTGRES.get_or_init(|| {
        let settings = vec![("max_connections".to_owned(), "300".to_owned())];
        Postgres::start(PostgresOptions { settings, ..PostgresOptions::default() }).unwrap()
    })
}

/// A database with the table that handlers write to.
pub(crate) struct Database {
    pub(crate) url: String,
    runtime: Runtime,
    client: Client,
}

impl Database {
    pub(crate) fn new(postgres: &Postgres, name: &str) -> Database {
        postgres.create_database(name).unwrap();
        let database = Database::open(&postgres.url(name));
        database.execute(HANDLED);
        database
    }

    pub(crate) fn open(url: &str) -> Database {
        let runtime = runtime(1);
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(async move { drop(connection.await) });
            client
        });
        Database { url: url.to_owned(), runtime, client }
    }

    pub(crate) fn execute(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }

    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.runtime.block_on(self.client.query(sql, &[])).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Ids in the order in which their transactions wrote.
    pub(crate) fn handled(&self) -> Vec<String> {
        self.texts("SELECT message_id FROM handled ORDER BY position")
    }

    pub(crate) fn handled_of(&self, key: &str) -> Vec<String> {
        self.texts(&format!(
            "SELECT message_id FROM handled WHERE message_key = '{key}' ORDER BY position"
        ))
    }

    /// Waits as long as messages are handled.
    pub(crate) fn wait_handled(&self, count: usize) {
        let handled = || self.number("SELECT count(*) FROM handled");
        let count = i64::try_from(count).unwrap();
        let mut last = handled();
        while last < count {
            let what = format!("more than {last} of {count} messages are handled");
            last = until(&what, || Some(handled()).filter(|now| *now > last));
        }
    }

    pub(crate) fn deferred(&self) -> i64 {
        self.number("SELECT count(*) FROM deferred_messages")
    }
}

/// An inbox that runs until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), InboxError>>,
    runtime: Runtime,
    pub(crate) calls: Arc<Calls>,
    registry: prometheus::Registry,
}

impl Running {
    pub(crate) fn start(
        settings: Settings,
        source: impl Into<walrelay_inbox::Source>,
        calls: &Arc<Calls>,
    ) -> Running {
        let registry = prometheus::Registry::new();
        let inbox = Inbox::new(settings.registry(&registry), source);
        let runtime = runtime(2);
        let (stop, stopped) = oneshot::channel::<()>();
        let script = Script(Arc::clone(calls));
        let task = runtime
            .spawn(async move { inbox.run(script, async move { drop(stopped.await) }).await });
        Running { stop, task, runtime, calls: Arc::clone(calls), registry }
    }

    /// The sum of a counter or gauge over its labels; `part` must stand among them.
    pub(crate) fn counted(&self, name: &str, part: &str) -> f64 {
        let families = self.registry.gather();
        let families = families.iter().filter(|family| family.name() == name);
        let metrics = families.flat_map(|family| family.get_metric());
        let is_meant = |metric: &&prometheus::proto::Metric| {
            part.is_empty() || metric.get_label().iter().any(|label| label.value() == part)
        };
        let value = |metric: &prometheus::proto::Metric| {
            metric.get_counter().get_value() + metric.get_gauge().get_value()
        };
        metrics.filter(is_meant).map(value).sum()
    }

    pub(crate) fn wait_held(&self, reason: &str, lanes: f64) {
        until(&format!("{lanes} lanes are held: {reason}"), || {
            (self.counted("consumer_held_lanes", reason) == lanes).then_some(())
        });
    }

    pub(crate) fn wait_counted(&self, name: &str, part: &str, count: f64) {
        let what = format!("{name} {part} is {count}");
        until(&what, || (self.counted(name, part) >= count).then_some(()));
        assert_eq!(self.counted(name, part), count, "{name} {part}");
    }

    pub(crate) fn stop(self) {
        self.stop.send(()).unwrap();
        let task = self.task;
        let ended = self.runtime.block_on(async { tokio::time::timeout(LIMIT, task).await });
        ended.unwrap().unwrap().unwrap();
    }

    /// Stops it though something in it waits.
    #[track_caller]
    pub(crate) fn stop_soon(self) {
        let began = Instant::now();
        self.stop();
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }

    /// Drops the future of the inbox, wherever it waits.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }
}

pub(crate) fn runtime(workers: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .unwrap()
}

/// Looks until there is something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Shows the log of the inbox with RUST_LOG.
pub(crate) fn log() {
    static LOG: OnceLock<()> = OnceLock::new();
    LOG.get_or_init(|| {
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "error".to_owned());
        let filter = filter.parse::<Targets>().unwrap();
        let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
        drop(lines.with_test_writer().finish().with(filter).try_init());
    });
}

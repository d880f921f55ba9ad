//! A consumer between a broker and a database.

use std::sync::Arc;
use std::time::Duration;

use walrelay_harness::Postgres;
use walrelay_inbox::{Inbox, Settings, Source};

use super::{Calls, Database, LEVELS, LIMIT, Running, Script, log, runtime, shared_postgres};

/// A broker, and the connection of a test to it.
pub(crate) trait TestBroker: Sized {
    /// Begins the names of fixtures that exist on each kind of broker.
    const LETTER: &str;
    /// A copy may be due so much earlier than its level says.
    const DUE_EARLIER_MAX: Duration;
    /// Headers of a message that do not get to its dead letter: the broker writes such ones.
    const BROKER_HEADERS: &[(&str, &str)];
    /// Headers of a replay that are not believed of other publishers.
    const FORGED_REPLAY: &[(&str, &str)];

    fn shared_url() -> String;

    fn source(url: &str, name: &str) -> impl Into<Source>;

    /// Connects, and makes what the relay would make for the consumer.
    fn open(url: &str, name: &str) -> Self;

    /// Sends a message as the relay does. Its key and its id are among the headers.
    fn send(&self, name: &str, headers: &[(&str, &str)], value: &str);

    /// Sends a message of key `a` as `walrelay dlq replay` does for the first time.
    fn replay(&self, name: &str, id: &str, value: &str);

    /// The values of `dlq-original-topic` and `dlq-original-exchange`.
    fn origin(name: &str) -> (&str, &str);

    /// Waits for so many dead letters, and returns them.
    fn wait_dead_letters(&self, name: &str, count: usize) -> Vec<Letter>;

    /// All messages are acknowledged, so many. To be asked when no inbox runs.
    fn assert_acknowledged(&self, name: &str, messages: usize);
}

/// A dead letter as it was read back.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) value: String,
    /// Its key and its id are among them.
    pub(crate) headers: Vec<(String, String)>,
}

impl Letter {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    #[track_caller]
    pub(crate) fn assert_headers(&self, wanted: &[(&str, &str)]) {
        for (name, value) in wanted {
            assert_eq!(self.header(name), *value, "{name}");
        }
    }
}

/// A consumer named as its database.
pub(crate) struct Fixture<B> {
    pub(crate) name: String,
    /// Where the broker is.
    pub(crate) url: String,
    pub(crate) database: Database,
    pub(crate) broker: B,
}

impl<B: TestBroker> Fixture<B> {
    /// On the shared services, with all that `init` makes.
    pub(crate) fn new(name: &str) -> Fixture<B> {
        let fixture = Fixture::bare(name, shared_postgres(), &B::shared_url());
        fixture.init();
        fixture
    }

    /// With a database and what the relay makes.
    pub(crate) fn bare(name: &str, postgres: &Postgres, url: &str) -> Fixture<B> {
        log();
        let (broker, database) = (B::open(url, name), Database::new(postgres, name));
        Fixture { name: name.to_owned(), url: url.to_owned(), database, broker }
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(&self.name, &self.database.url)
    }

    pub(crate) fn inbox(&self, settings: Settings) -> Inbox {
        Inbox::new(settings, B::source(&self.url, &self.name))
    }

    pub(crate) fn init(&self) {
        self.init_with(self.settings());
    }

    pub(crate) fn init_with(&self, settings: Settings) {
        runtime(1).block_on(self.inbox(settings).init()).unwrap();
    }

    pub(crate) fn start(&self) -> Running {
        self.start_with(self.settings(), &Calls::new())
    }

    pub(crate) fn start_with(&self, settings: Settings, calls: &Arc<Calls>) -> Running {
        Running::start(settings, B::source(&self.url, &self.name), calls)
    }

    /// The error with which an inbox ends.
    pub(crate) fn run_error(&self) -> String {
        let inbox = self.inbox(self.settings());
        let running = inbox.run(Script(Calls::new()), std::future::pending());
        let ended = runtime(2).block_on(async { tokio::time::timeout(LIMIT, running).await });
        ended.unwrap().unwrap_err().to_string()
    }

    /// A message as the relay publishes it.
    pub(crate) fn send(&self, key: &str, id: &str, value: &str) {
        self.send_with(&[("key", key), ("id", id)], value);
    }

    pub(crate) fn send_with(&self, headers: &[(&str, &str)], value: &str) {
        self.broker.send(&self.name, headers, value);
    }

    pub(crate) fn wait_dead_letters(&self, count: usize) -> Vec<Letter> {
        self.broker.wait_dead_letters(&self.name, count)
    }

    pub(crate) fn assert_acknowledged(&self, messages: usize) {
        self.broker.assert_acknowledged(&self.name, messages);
    }
}

pub(crate) fn settings(service: &str, url: &str) -> Settings {
    Settings::new(service, url).lanes(3).levels(LEVELS).stop_within(Duration::from_secs(5))
}

//! The connection of a lane to the consumer's database: opened when it is needed, and again after
//! each loss.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, NoTls};

use crate::InboxError;
use crate::error::chain;
use crate::login::{PlainConnector, names_sockets};
use crate::panics::caught;
use crate::settings::{Connect, Settings};
use crate::store::Store;

pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Limit for the TCP connection to one address, within [`CONNECT_WITHIN`].
const ADDRESS_WITHIN: Duration = Duration::from_secs(3);
/// A connection whose client is dropped while Postgres has not answered is closed after this.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// The other way round: the server notices after 30 s that this host has vanished, and rolls back.
/// Until then others wait for the messages that it was handling; by default that is two hours.
const NOTICE_LOST_CLIENT: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; \
     SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000";
/// A server that has vanished is noticed after these, within 30 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVES_MAX: u32 = 3;
const UNANSWERED_MAX: Duration = Duration::from_secs(30);

/// Without the URL, which may have a password.
const NO_URL: &str = "the URL of the consumer's database cannot be read: it is \
    postgres://USER:PASSWORD@HOST:PORT/DATABASE, where in each part what is no letter or digit is \
    written as %2F, or host=HOST user=USER password=PASSWORD dbname=DATABASE, with no parameters but \
    those that tokio-postgres knows";

/// Where the database is, and how it is reached.
#[derive(Clone)]
pub(crate) struct Database {
    consumer: String,
    config: Config,
    plain: Option<PlainConnector>,
    connect: Option<Connect>,
}

/// A client whose connection is closed when it is dropped, also if Postgres does not answer. That of
/// [`Settings::connect`] is driven by a task of the user, which ends when the answer has come.
pub(crate) struct OwnClient {
    client: Client,
    _alive: Option<oneshot::Sender<()>>,
}

impl OwnClient {
    fn driven((client, connection): (Client, impl Future + Send + 'static)) -> OwnClient {
        let (alive, dropped) = oneshot::channel();
        tokio::spawn(drive(connection, dropped));
        OwnClient { client, _alive: Some(alive) }
    }
}

impl Deref for OwnClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for OwnClient {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Exchanges the messages of a connection until it ends, or its client is dropped: otherwise the connection
/// would stay open until the answer has come, and each new attempt would make another one.
async fn drive(connection: impl Future, dropped: oneshot::Receiver<()>) {
    let is_over = async {
        drop(dropped.await);
        // For a rollback on its way.
        sleep(CLOSE_WITHIN).await;
    };
    tokio::select! {
        // Its error reaches the client, whose requests then fail.
        _ended = connection => {}
        () = is_over => {}
    }
}

/// Why nothing can be done now. It is no failure of a message.
#[derive(Debug)]
pub(crate) struct Outage(pub(crate) String);

impl From<tokio_postgres::Error> for Outage {
    fn from(error: tokio_postgres::Error) -> Outage {
        Outage(chain(&error))
    }
}

impl Database {
    pub(crate) fn new(settings: &Settings) -> Result<Database, InboxError> {
        let mut config: Config = match &settings.connect {
            Some(_) => Config::new(),
            None => usable(&settings.postgres_url)?,
        };
        if config.get_application_name().is_none() {
            config.application_name(settings.service.as_str());
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(ADDRESS_WITHIN);
        }
        // One that was the primary before a failover accepts connections, and no message can be claimed there.
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        if count > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNANSWERED_MAX);
        }
        config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE_IDLE));
        let interval = config.get_keepalives_interval().unwrap_or(KEEPALIVE_INTERVAL);
        let retries = config.get_keepalives_retries().unwrap_or(KEEPALIVES_MAX);
        config.keepalives_interval(interval).keepalives_retries(retries);
        let plain = PlainConnector::new(&mut config);
        let connect = settings.connect.clone();
        Ok(Database { consumer: settings.service.clone(), config, plain, connect })
    }

    /// Waits for as long as a server that accepts the connection says nothing.
    pub(crate) async fn connect(&self) -> Result<OwnClient, tokio_postgres::Error> {
        let client = match (&self.connect, &self.plain) {
            (Some(connect), _) => OwnClient { client: connect().await?, _alive: None },
            (None, Some(plain)) => OwnClient::driven(self.config.connect(plain.clone()).await?),
            (None, None) => OwnClient::driven(self.config.connect(NoTls).await?),
        };
        client.batch_execute(NOTICE_LOST_CLIENT).await?;
        Ok(client)
    }
}

/// Refuses at once a URL that no attempt to connect would mend.
fn usable(url: &str) -> Result<Config, InboxError> {
    // The parser's own text may repeat the URL with its password.
    let config: Config = url.parse().map_err(|_| InboxError::Settings(NO_URL.to_owned()))?;
    let wrong = if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        "names no host"
    } else if config.get_ssl_mode() == SslMode::Require {
        "has sslmode=require: give Settings::connect a function that connects with TLS"
    } else if names_sockets(&config)
        && (!config.get_hostaddrs().is_empty()
            || config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_))))
    {
        "names sockets and hosts: give Settings::connect a function that tries both"
    } else {
        return Ok(config);
    };
    Err(InboxError::Settings(format!("the URL of the consumer's database {wrong}")))
}

/// Waits for an operation on Postgres within [`CONNECT_WITHIN`]. [`Settings::connect`] is code of the
/// user, whose panic would end a lane, or the retention.
pub(crate) async fn in_time<T>(
    opening: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Outage> {
    let late = |_| Outage(format!("Postgres did not answer in {CONNECT_WITHIN:?}"));
    let panicked = |panic: String| Outage(format!("connecting to Postgres panicked: {panic}"));
    // In a box: it is large and rare, and would be a part of the future of each message.
    let opened = caught(tokio::time::timeout(CONNECT_WITHIN, Box::pin(opening))).await;
    Ok(opened.map_err(panicked)?.map_err(late)??)
}

/// The session of a lane.
pub(crate) struct Session {
    database: Database,
    store: Option<Store>,
}

impl Session {
    pub(crate) fn new(database: Database) -> Session {
        Session { database, store: None }
    }

    pub(crate) async fn store(&mut self) -> Result<&mut Store, Outage> {
        let store = match self.store.take().filter(|store| !store.is_closed()) {
            Some(store) => store,
            None => {
                let opening = async {
                    let client = self.database.connect().await?;
                    Store::open(client, &self.database.consumer).await
                };
                in_time(opening).await?
            }
        };
        Ok(self.store.insert(store))
    }

    /// The session is not used again: what it was doing is unknown.
    pub(crate) fn discard(&mut self) {
        self.store = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn a_connect_of_the_user_that_panics_is_an_outage() {
        let connect: Connect = Arc::new(|| panic!("no password"));
        let settings = Settings::new("billing", "").connect(connect);
        let mut session = Session::new(Database::new(&settings).unwrap());
        for _ in 0..2 {
            let Outage(reason) = session.store().await.err().unwrap();
            assert_eq!(reason, "connecting to Postgres panicked: no password");
        }
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL: make test"]
    async fn a_session_that_is_given_up_unanswered_is_closed() {
        // GIVEN a server that notices when the other end of a connection is closed
        let options = "options=-cclient_connection_check_interval%3D50ms";
        let url = format!("{}?{options}", testing::postgres_url());
        let database = Database::new(&Settings::new("given-up", url)).unwrap();
        let admin = testing::client().await;
        // WHEN the answer of a session is not waited for, and it is dropped
        let client = database.connect().await.unwrap();
        // (The server looks after its end, too.)
        let shown = ["idle", "interval", "count"]
            .map(|field| format!("current_setting('tcp_keepalives_{field}')"))
            .join(" || ' ' || ");
        let shown = client.query_one(&format!("SELECT {shown}"), &[]).await.unwrap();
        assert_eq!(shown.get::<_, &str>(0), "10 5 3");
        let asking = client.batch_execute("SELECT pg_catalog.pg_sleep(600)");
        assert!(tokio::time::timeout(Duration::from_millis(200), asking).await.is_err());
        drop(client);
        // THEN its process ends, and with it what that has locked
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'given-up'";
        let gone = async {
            while admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the process ends");
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL: make test"]
    async fn a_host_that_does_not_answer_is_passed_over() {
        // GIVEN a port whose queue of connections is full
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = silent.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(connection) =
            std::net::TcpStream::connect_timeout(&at, Duration::from_millis(200))
        {
            waiting.push(connection);
        }
        let url = testing::postgres_url();
        let (login, server) = url.rsplit_once('@').unwrap();
        let (host, database) = server.split_once('/').unwrap();
        let url = format!("{login}@{at},{host}/{database}");
        // WHEN it comes first THEN the next host is used, if it takes writes
        let database = Database::new(&Settings::new("hosts", url)).unwrap();
        assert_eq!(database.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let client = in_time(database.connect()).await.unwrap();
        client.batch_execute("SELECT 1").await.unwrap();
    }

    #[test]
    fn a_url_that_leads_nowhere_is_refused() {
        assert!(usable("postgres://app@localhost/app").is_ok());
        assert!(usable("host=/run/postgresql user=app sslmode=prefer").is_ok());
        for (url, part) in [
            ("postgres:///app?user=app", "host"),
            ("postgres://app@localhost/app?sslmode=require", "Settings::connect"),
            ("host=/run/postgresql,db user=app", "sockets and hosts"),
            ("host=/run/postgresql hostaddr=192.0.2.1 user=app", "sockets and hosts"),
            ("localhost", "URL"),
        ] {
            let error = usable(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_read_is_told_without_its_password() {
        for url in [
            "jdbc:postgres://app:s3cret@db/app?ssl=on",
            "'postgres://app:s3cret@db/app?ssl=on'",
            "app:s3cret@db/app",
            "postgres://app:s3cret@db:port/app",
            "postgres://app:s3cret@db/app?s3cret=on",
            "host=db password='s3cret",
            "host=db s3cret",
        ] {
            let error = usable(url).unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(told.contains("URL") && !told.contains("s3cret"), "{url}: {told}");
        }
    }

    #[test]
    fn a_server_that_has_vanished_is_noticed_soon() {
        let of = |url| Database::new(&Settings::new("billing", url)).unwrap().config;
        let known = of("postgres://app@db/app");
        let found = (known.get_keepalives_idle(), known.get_keepalives_interval());
        assert_eq!(found, (Duration::from_secs(10), Some(Duration::from_secs(5))));
        assert_eq!(known.get_keepalives_retries(), Some(3));
        // Own settings stay.
        let own = of("host=db keepalives_idle=4 keepalives_interval=2 keepalives_retries=7");
        let found = (own.get_keepalives_idle(), own.get_keepalives_interval());
        assert_eq!(found, (Duration::from_secs(4), Some(Duration::from_secs(2))));
        assert_eq!(own.get_keepalives_retries(), Some(7));
    }
}

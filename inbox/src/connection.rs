//! The connection of a lane to the consumer's database: opened when it is needed, and again after
//! each loss.

use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

use crate::InboxError;
use crate::error::chain;
use crate::login::{PlainConnector, names_sockets};
use crate::settings::{Connect, Settings};
use crate::store::Store;

pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The other way round: the server notices after 30 s that this host has vanished, and rolls back.
/// Until then others wait for the messages that it was handling; by default that is two hours.
const NOTICE_LOST_CLIENT: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; \
     SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000";
/// A server that has vanished is noticed after these.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const UNANSWERED_MAX: Duration = Duration::from_secs(30);

/// Where the database is, and how it is reached.
#[derive(Clone)]
pub(crate) struct Database {
    consumer: String,
    config: Config,
    plain: Option<PlainConnector>,
    connect: Option<Connect>,
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
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNANSWERED_MAX);
        }
        config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE_IDLE));
        let plain = PlainConnector::new(&mut config);
        let connect = settings.connect.clone();
        Ok(Database { consumer: settings.service.clone(), config, plain, connect })
    }

    /// Waits for as long as a server that accepts the connection says nothing.
    pub(crate) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        // The error of a connection reaches the client, whose requests then fail.
        let client = match (&self.connect, &self.plain) {
            (Some(connect), _) => connect().await?,
            (None, Some(plain)) => {
                let (client, connection) = self.config.connect(plain.clone()).await?;
                tokio::spawn(async move { drop(connection.await) });
                client
            }
            (None, None) => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(async move { drop(connection.await) });
                client
            }
        };
        client.batch_execute(NOTICE_LOST_CLIENT).await?;
        Ok(client)
    }
}

/// Refuses at once a URL that no attempt to connect would mend.
fn usable(url: &str) -> Result<Config, InboxError> {
    let what = "the URL of the consumer's database";
    let config: Config = url.parse().map_err(|source| InboxError::Postgres { what, source })?;
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
    Err(InboxError::Settings(format!("{what} {wrong}")))
}

/// Waits for an operation on Postgres within [`CONNECT_WITHIN`].
pub(crate) async fn in_time<T>(
    opening: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Outage> {
    let late = |_| Outage(format!("Postgres did not answer in {CONNECT_WITHIN:?}"));
    Ok(tokio::time::timeout(CONNECT_WITHIN, opening).await.map_err(late)??)
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
        if self.store.as_ref().is_none_or(Store::is_closed) {
            self.store = None;
            let opening = async {
                let client = self.database.connect().await?;
                Store::open(client, &self.database.consumer).await
            };
            self.store = Some(in_time(opening).await?);
        }
        self.store.as_mut().ok_or_else(|| Outage("not connected".to_owned()))
    }

    /// The session is not used again: what it was doing is unknown.
    pub(crate) fn discard(&mut self) {
        self.store = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

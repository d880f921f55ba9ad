//! The SQL side: tokio-postgres on a connection that was dialled like the stream's.
//!
//! The library's own dialling is not used, so that TLS modes, host lists and timeouts cannot mean one thing
//! here and another there. Why a connection ended is kept: 57P01 or 57P03 is how a stopping server shows.

use std::error::Error as _;

use tokio::sync::watch;
use tokio_postgres::{Client, Config, NoTls};

use super::connect::dial::{self, EMPTY_PATH_SQL, Link, Login, SORT_SQL, Sort};
use super::connect::first_answer::FirstAnswer;
use super::connect::{ConnectError, ServerError};
use super::settings::{ConnInfo, Host, TargetSessionAttrs};

/// Why an SQL connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlEnd {
    /// The server's last word, if it had one.
    pub server: Option<ServerError>,
    /// For people.
    pub why: String,
}

/// An SQL connection; dropping it closes it.
pub struct Sql {
    /// For queries.
    pub client: Client,
    /// `None` while the connection lives, then why it ended.
    pub closed: watch::Receiver<Option<SqlEnd>>,
    /// Which server it is.
    pub server: Host,
    /// Neither TLS nor this machine: others can read what goes over it.
    pub exposed: bool,
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sql").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Connects to the first server that fits.
///
/// # Errors
/// See [`ConnectError::kind`].
pub async fn connect(info: &ConnInfo) -> Result<Sql, ConnectError> {
    dial::first_fit(&SqlLogin, info).await
}

struct SqlLogin;

impl Login for SqlLogin {
    type Session = Sql;

    async fn login(&self, link: Link, info: &ConnInfo) -> Result<(Sql, Sort), ConnectError> {
        let Link { stream, host, at, exposed } = link;
        let mut config = Config::new();
        config.user(&info.user).dbname(&info.dbname).application_name(&info.application_name);
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        if let Some(options) = &info.options {
            config.options(options);
        }
        if let Some(password) = info.password.as_ref().or(host.password.as_ref()) {
            config.password(password.expose());
        }
        let wrong = |error| ConnectError::sql(&at, &error);
        let stream = FirstAnswer::new(stream, info.require_auth.clone(), exposed);
        let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(wrong)?;
        let mut sort = (info.target_session_attrs == TargetSessionAttrs::Any)
            .then(Sort::default)
            .or_else(|| {
                Sort::reported(
                    connection.parameter("in_hot_standby"),
                    connection.parameter("default_transaction_read_only"),
                )
            });
        let (tell, closed) = watch::channel(None);
        tokio::spawn(async move {
            let end = end_of(connection.await);
            tell.send_replace(Some(end));
        });
        client.batch_execute(EMPTY_PATH_SQL).await.map_err(wrong)?;
        if sort.is_none() {
            let row = client.query_one(SORT_SQL, &[]).await.map_err(wrong)?;
            let read_only: &str = row.try_get(1).map_err(wrong)?;
            sort = Some(Sort {
                standby: row.try_get(0).map_err(wrong)?,
                read_only: read_only == "on",
            });
        }
        Ok((Sql { client, closed, server: host, exposed }, sort.unwrap_or_default()))
    }
}

fn end_of(outcome: Result<(), tokio_postgres::Error>) -> SqlEnd {
    match outcome {
        Ok(()) => SqlEnd { server: None, why: "the connection was closed".to_owned() },
        Err(error) => SqlEnd {
            server: error.as_db_error().map(ServerError::from),
            why: match error.source() {
                Some(source) => source.to_string(),
                None => error.to_string(),
            },
        },
    }
}

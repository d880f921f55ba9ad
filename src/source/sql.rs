//! The SQL side: tokio-postgres on a connection that was dialled like the stream's.
//!
//! The library's own dialling is not used, so that TLS modes, host lists and timeouts cannot mean one
//! thing here and another there. Why a connection ended is kept: 57P01 or 57P03 is how a stopping
//! server shows.

use std::error::Error as _;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::connect::dial::{self, EMPTY_PATH_SQL, ROLE_SQL, ServerLink, ServerRole, SessionLogin};
use super::connect::{ConnectCause, ConnectError, ServerError};
use super::settings::{ConnInfo, PostgresHost, TargetSessionAttrs};

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
    pub server: PostgresHost,
    /// Neither TLS nor this machine: others can read what goes over it.
    pub exposed: bool,
}

impl Sql {
    /// The error of a query on this connection.
    pub(crate) fn error(&self, error: &Error) -> ConnectError {
        ConnectError::new(self.server.to_string(), error.into())
    }

    /// There was no answer within `limit`.
    pub(crate) fn late(&self, limit: Duration) -> ConnectError {
        ConnectError::new(self.server.to_string(), ConnectCause::Timeout(limit))
    }

    /// Asks something that must be answered within `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ConnectError> {
        match timeout(limit, query).await {
            Ok(answer) => answer.map_err(|error| self.error(&error)),
            Err(_) => Err(self.late(limit)),
        }
    }
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sql").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Connects to the first server that fits.
pub async fn connect(info: &ConnInfo) -> Result<Sql, ConnectError> {
    dial::first_fit(&SqlLogin, info).await
}

struct SqlLogin;

impl SessionLogin for SqlLogin {
    type Session = Sql;

    async fn login(
        &self,
        link: ServerLink,
        info: &ConnInfo,
    ) -> Result<(Sql, ServerRole), ConnectCause> {
        let ServerLink { socket, host: server, .. } = link;
        let mut config = Config::new();
        config.user(&info.user).dbname(&info.dbname).application_name(&info.application_name);
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        if let Some(options) = &info.options {
            config.options(options);
        }
        if let Some(password) = info.password.as_ref().or(server.password.as_ref()) {
            config.password(password.expose());
        }
        let exposed = socket.exposed;
        let socket = socket.judged_by(info.require_auth.clone());
        let (client, connection) = config.connect_raw(socket, NoTls).await?;
        let mut role = match info.target_session_attrs {
            TargetSessionAttrs::Any => Some(ServerRole::default()),
            _ => ServerRole::reported(
                connection.parameter("in_hot_standby"),
                connection.parameter("default_transaction_read_only"),
            ),
        };
        let (tell, closed) = watch::channel(None);
        tokio::spawn(async move {
            let end = end_of(connection.await);
            tell.send_replace(Some(end));
        });
        client.batch_execute(EMPTY_PATH_SQL).await?;
        if role.is_none() {
            let row = client.query_one(ROLE_SQL, &[]).await?;
            role = Some(ServerRole::answered(row.try_get(0)?, row.try_get(1)?));
        }
        Ok((Sql { client, closed, server, exposed }, role.unwrap_or_default()))
    }
}

fn end_of(outcome: Result<(), Error>) -> SqlEnd {
    match outcome {
        Ok(()) => SqlEnd { server: None, why: "the connection was closed".to_owned() },
        Err(error) => SqlEnd {
            server: error.as_db_error().map(ServerError::from),
            why: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        },
    }
}

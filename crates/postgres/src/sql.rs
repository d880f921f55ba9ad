//! The SQL connection: tokio-postgres on a connection
//! that was made like the replication connection.
//!
//! The library's own way to connect is not used, so that TLS modes, host lists and timeouts cannot
//! mean different things for the two.

use std::future::{pending, poll_fn};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, NoTls, SimpleQueryMessage, SimpleQueryRow,
};

use super::connect::dial::{self, NO_SEARCH_PATH, SESSION_SQL, ServerLink, ServerRole};
use super::connect::socket::ServerSocket;
use super::connect::{ConnectCause, ConnectError, ServerStart, notice, server_error};
use super::login_files;
use super::settings::{ConnInfo, PostgresHost};
use super::tls;

/// A connection that is dropped while Postgres has not answered is closed after this.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// An SQL connection; dropping it closes it, also if Postgres does not answer.
#[derive(Debug)]
pub struct Sql {
    pub client: Client,
    pub server: PostgresHost,
    pub started: ServerStart,
    pub link: LinkSafety,
    alive: oneshot::Sender<()>,
}

/// How safe a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSafety {
    /// Within this machine, or with TLS that verifies the server.
    Safe,
    /// With TLS that anybody can be the other end of.
    Unverified,
    /// Without TLS to another machine: others can read what is sent.
    Exposed,
}

impl Sql {
    /// The error of a query on this connection.
    pub fn error(&self, error: &Error) -> ConnectError {
        ConnectError::new(&self.server, error.into())
    }

    /// There was no answer within `limit`.
    pub fn late(&self, limit: Duration) -> ConnectError {
        ConnectError::new(&self.server, ConnectCause::Timeout(limit))
    }

    /// Runs a query that must be answered within `limit`.
    pub async fn within<T>(
        &self,
        limit: Duration,
        query: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ConnectError> {
        match timeout(limit, query).await {
            Ok(answer) => answer.map_err(|error| self.error(&error)),
            Err(_) => Err(self.late(limit)),
        }
    }

    /// The client alone. Where it is dropped before an answer, the connection lasts until that has come.
    pub fn into_client(self) -> Client {
        let _driven = self.alive.send(()).is_ok();
        self.client
    }
}

/// Connects to the first server that fits.
pub async fn connect(info: &ConnInfo) -> Result<Sql, ConnectError> {
    let info =
        &*login_files::current(info).map_err(|unread| ConnectError::new("", unread.into()))?;
    match dial::first_fit(info, |link| log_in(link, info, NO_SEARCH_PATH)).await {
        Err(error) if error.is_refused_option() => {
            dial::first_fit(info, |link| log_in(link, info, "")).await
        }
        found => found,
    }
}

async fn log_in(
    link: ServerLink,
    info: &ConnInfo,
    options: &str,
) -> Result<(Sql, ServerRole), ConnectCause> {
    let ServerLink { socket, host: server } = link;
    let mut config = Config::new();
    config.user(&info.user).dbname(&info.dbname).application_name(&info.application_name);
    config.ssl_mode(tokio_postgres::config::SslMode::Disable);
    let options = format!("{options} {}", info.options.as_deref().unwrap_or_default());
    if !options.trim().is_empty() {
        config.options(options.trim());
    }
    if let Some(password) = info.password.as_ref().or(server.password.as_ref()) {
        config.password(password.expose());
    }
    let link = match (socket.exposed, socket.encrypted && !tls::verifies(info)) {
        (true, _) => LinkSafety::Exposed,
        (false, true) => LinkSafety::Unverified,
        (false, false) => LinkSafety::Safe,
    };
    let socket = socket.judged_by(info.require_auth.clone());
    let (client, connection) = config.connect_raw(socket, NoTls).await?;
    let (alive, dropped) = oneshot::channel();
    tokio::spawn(drive(connection, server.clone(), dropped));
    let rows = text_rows(&client, SESSION_SQL).await?;
    let role = ServerRole::of(|at| rows.first()?.get(at));
    let started = role.started.clone();
    Ok((Sql { client, server, started, link, alive }, role))
}

/// A value of a row; none also where it is not UTF-8, as it may be in a database without an encoding.
pub fn text(row: &SimpleQueryRow, at: usize) -> Option<&str> {
    row.try_get(at).ok().flatten()
}

/// The rows of a query, with their values in text form.
pub async fn text_rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>, Error> {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    Ok(client.simple_query(sql).await?.into_iter().filter_map(row).collect())
}

/// Runs queries, which must not have begun, in a transaction that changes nothing; `limits` are statements at its
/// beginning.
pub async fn read_only<T>(
    client: &Client,
    limits: &str,
    queries: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    client.batch_execute(&format!("BEGIN READ ONLY; {limits}")).await?;
    let found = queries.await;
    let ended = client.batch_execute("ROLLBACK").await;
    let found = found?;
    ended.map(|()| found)
}

/// Exchanges the messages of a connection until it ends or its [`Sql`] is dropped, and logs what the server
/// remarks, also during the login.
async fn drive(
    mut connection: Connection<ServerSocket, NoTlsStream>,
    server: PostgresHost,
    dropped: oneshot::Receiver<()>,
) {
    let exchanged = async {
        // What ends it is the error of whatever is being asked.
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notice(notice) = &message {
                notice::log(&server_error(notice), &server);
            }
        }
    };
    // Without a client the connection would stay open until the answer has come, and each new attempt would
    // make another one.
    let is_over = async {
        match dropped.await {
            Ok(()) => pending().await,
            Err(_) => sleep(CLOSE_WITHIN).await,
        }
    };
    tokio::select! {
        () = exchanged => {}
        () = is_over => {}
    }
}

#[cfg(test)]
#[path = "sql_tests.rs"]
mod tests;

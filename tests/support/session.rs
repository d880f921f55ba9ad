//! SQL of the tests, with and without a login for each statement.

use std::cell::RefCell;

/// The first column of the first row, as text; an error when Postgres is away.
pub(crate) fn query(url: &str, sql: &str) -> Result<Option<String>, tokio_postgres::Error> {
    Session::open(url)?.first_value(sql)
}

/// As [`query`], for what is asked again and again: the thread keeps the last session, because a
/// login costs the machine more than a statement.
pub(crate) fn query_again(url: &str, sql: &str) -> Result<Option<String>, tokio_postgres::Error> {
    thread_local!(static LAST: RefCell<Option<Session>> = const { RefCell::new(None) });
    if let Some(session) = LAST.take().filter(|session| session.url == url)
        && let Ok(value) = session.first_value(sql)
    {
        LAST.set(Some(session));
        return Ok(value);
    }
    // Not with the first error: the server may have been started anew since.
    let session = Session::open(url)?;
    let value = session.first_value(sql)?;
    LAST.set(Some(session));
    Ok(value)
}

/// One session, for transactions that are open side by side.
pub(crate) struct Session {
    url: String,
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    pub(crate) fn open(url: &str) -> Result<Session, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connecting = tokio_postgres::connect(url, tokio_postgres::NoTls);
        let (client, connection) = runtime.block_on(connecting)?;
        runtime.spawn(connection);
        Ok(Session { url: url.to_owned(), runtime, client })
    }

    pub(crate) fn first_value(&self, sql: &str) -> Result<Option<String>, tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        Ok(messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }
}

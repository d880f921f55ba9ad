//! State of the walsender while the stream is silent, asked over a connection of its own to the
//! server that the stream comes from: so an answer also shows that this server can be reached.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use walrelay_core::relay::control::{Walsender, WalsenderAnswer};

use super::link::LinkEnd;
use super::sql::connection;
use crate::base::lsn::Lsn;
use crate::source::connect::{ConnectError, ConnectErrorKind};
use crate::source::settings::{PostgresHost, SourceSettings};
use crate::source::sql::{self, Sql};
use crate::source::walsender::{Activity, WalsenderObserver};

/// Limit for one answer, including a new connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// An unused connection is closed after this.
const KEEP_IDLE: Duration = Duration::from_secs(5);

pub(super) async fn serve(
    settings: Arc<SourceSettings>,
    mut end: LinkEnd<Walsender, WalsenderAnswer>,
) {
    let mut looks = Looks { settings, open: None, looks: WalsenderObserver::default() };
    while let Some(walsender) = looks.next_request(&mut end.requests).await {
        let pid = walsender.pid;
        let look = timeout(ANSWER_WITHIN, looks.look(&walsender)).await;
        let late = |_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs()));
        let (activity, confirmed) = match look.unwrap_or_else(late) {
            Ok((activity, confirmed)) => (Ok(activity), confirmed),
            Err(why) => (Err(why), Lsn::ZERO),
        };
        if end.answers.send(WalsenderAnswer { pid, activity, confirmed }).is_err() {
            return;
        }
    }
}

struct Looks {
    settings: Arc<SourceSettings>,
    open: Option<(PostgresHost, Sql)>,
    looks: WalsenderObserver,
}

impl Looks {
    async fn next_request(
        &mut self,
        requests: &mut mpsc::Receiver<Walsender>,
    ) -> Option<Walsender> {
        if self.open.is_some() {
            if let Ok(request) = timeout(KEEP_IDLE, requests.recv()).await {
                return request;
            }
            self.open = None;
        }
        requests.recv().await
    }

    async fn look(&mut self, walsender: &Walsender) -> Result<(Activity, Lsn), String> {
        let Walsender { host, server, pid } = walsender;
        if let Some((_, sql)) =
            self.open.take().filter(|(at, sql)| at == host && sql.started == *server)
            && let Ok(look) = self.ask(host, *pid, sql).await
        {
            return Ok(look);
        }
        // A kept connection may have broken in the meantime, so the answer comes from a new one.
        let info = connection(&self.settings.connection, Some(walsender), ANSWER_WITHIN);
        let sql = match sql::connect(&info).await {
            Ok(sql) => sql,
            Err(error) if is_only_for_new(&error) => return Ok((Activity::Unasked, Lsn::ZERO)),
            Err(error) => return Err(error.to_string()),
        };
        // A name may lead to several servers.
        if sql.started != *server {
            return Err(format!("the stream comes from another server than {}", sql.server));
        }
        self.ask(host, *pid, sql).await
    }

    async fn ask(
        &mut self,
        host: &PostgresHost,
        pid: i32,
        sql: Sql,
    ) -> Result<(Activity, Lsn), String> {
        let look = self.looks.observe(&sql.client, &self.settings.slot, pid).await;
        let look = look.map_err(|error| error.to_string())?;
        self.open = Some((host.clone(), sql));
        Ok(look)
    }
}

/// Whether a server that refuses a connection with such an error may still serve the sessions that it has: one that
/// shuts down smartly does, and so does one whose passwords or certificates are being replaced.
fn is_only_for_new(error: &ConnectError) -> bool {
    let refuses_for_now =
        matches!(error.kind(), ConnectErrorKind::Retry | ConnectErrorKind::Stopping);
    error.is_of_tls() || error.is_refused_login() || (error.sqlstate().is_some() && refuses_for_now)
}

#[cfg(test)]
#[path = "walsender_tests.rs"]
mod tests;

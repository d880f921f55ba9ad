//! What Postgres does while the stream is silent: the loop asks, the control runtime looks.
//!
//! The look goes over a connection of its own, to the server that the stream comes from: it also
//! shows that this server can be reached. One request and one answer at a time.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::link::LinkEnd;
use crate::source::connect::ConnectErrorKind;
use crate::source::settings::{ConnInfo, PostgresHost, SourceSettings, TargetSessionAttrs};
use crate::source::sql::{self, Sql};
use crate::source::walsender::{Activity, WalsenderLooks};

/// Longest way to one answer, with a new connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The connection is closed when nothing was asked for so long.
const KEEP: Duration = Duration::from_secs(5);

/// The server process that sends the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walsender {
    /// Its server.
    pub host: PostgresHost,
    /// Its process id.
    pub pid: i32,
}

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalsenderAnswer {
    /// The process id that was asked for.
    pub pid: i32,
    /// What it does; why Postgres did not say.
    pub activity: Result<Activity, String>,
}

/// Answers as long as somebody asks.
pub(super) async fn serve(settings: &SourceSettings, mut end: LinkEnd<Walsender, WalsenderAnswer>) {
    let mut looks = Looks { settings, open: None, looks: WalsenderLooks::default() };
    while let Some(walsender) = looks.next_request(&mut end.requests).await {
        let pid = walsender.pid;
        let look = timeout(ANSWER_WITHIN, looks.look(&walsender)).await;
        let late = |_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs()));
        let activity = look.unwrap_or_else(late);
        if end.answers.send(WalsenderAnswer { pid, activity }).is_err() {
            return;
        }
    }
}

struct Looks<'s> {
    settings: &'s SourceSettings,
    open: Option<(PostgresHost, Sql)>,
    looks: WalsenderLooks,
}

impl Looks<'_> {
    async fn next_request(
        &mut self,
        requests: &mut mpsc::Receiver<Walsender>,
    ) -> Option<Walsender> {
        if self.open.is_some() {
            if let Ok(request) = timeout(KEEP, requests.recv()).await {
                return request;
            }
            self.open = None;
        }
        requests.recv().await
    }

    async fn look(&mut self, walsender: &Walsender) -> Result<Activity, String> {
        let Walsender { host, pid } = walsender;
        if let Some((_, sql)) = self.open.take().filter(|(at, _)| at == host)
            && let Ok(activity) = self.ask(host, *pid, sql).await
        {
            return Ok(activity);
        }
        // A connection that was kept may have ended by itself: a new one tells.
        let (hosts, any) = (vec![host.clone()], TargetSessionAttrs::Any);
        let own = self.settings.connection.clone();
        let info = ConnInfo { hosts, target_session_attrs: any, ..own };
        let sql = match sql::connect(&info).await {
            Ok(sql) => sql,
            // It lives, and lets nobody in for now: that says nothing about the stream.
            Err(error) if error.sqlstate().is_some() && error.kind() == ConnectErrorKind::Retry => {
                return Ok(Activity::Unclear);
            }
            Err(error) => return Err(error.to_string()),
        };
        self.ask(host, *pid, sql).await
    }

    async fn ask(&mut self, host: &PostgresHost, pid: i32, sql: Sql) -> Result<Activity, String> {
        let look = self.looks.look(&sql.client, &self.settings.slot, pid).await;
        let activity = look.map_err(|error| error.to_string())?;
        self.open = Some((host.clone(), sql));
        Ok(activity)
    }
}

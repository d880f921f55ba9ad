//! What Postgres does while the stream is silent: the loop asks, the control runtime looks.
//!
//! The look goes over a connection of its own, to the server that the stream comes from: it also
//! shows that this server can be reached. One question and one answer at a time.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::source::connect::Kind;
use crate::source::settings::{ConnInfo, Host, SourceSettings, TargetSessionAttrs};
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
    pub host: Host,
    /// Its process id.
    pub pid: i32,
}

/// The loop's end.
#[derive(Debug)]
pub struct WalsenderQuery {
    questions: mpsc::Sender<Walsender>,
    answers: std_mpsc::Receiver<WalsenderAnswer>,
}

/// The control runtime's end.
#[derive(Debug)]
pub struct WalsenderWorker {
    questions: mpsc::Receiver<Walsender>,
    answers: std_mpsc::SyncSender<WalsenderAnswer>,
}

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalsenderAnswer {
    /// The process id that was asked for.
    pub pid: i32,
    /// What it does; why Postgres did not say.
    pub activity: Result<Activity, String>,
}

/// The two ends.
#[must_use]
pub fn pair() -> (WalsenderQuery, WalsenderWorker) {
    let (question_sender, questions) = mpsc::channel(1);
    let (answer_sender, answers) = std_mpsc::sync_channel(1);
    let walsender_query = WalsenderQuery { questions: question_sender, answers };
    (walsender_query, WalsenderWorker { questions, answers: answer_sender })
}

impl WalsenderQuery {
    /// Asks. True when the question is on its way, and its answer is to be awaited.
    #[must_use]
    pub fn ask(&self, walsender: Walsender) -> bool {
        self.questions.try_send(walsender).is_ok()
    }

    /// The answer, if it has come.
    #[must_use]
    pub fn answer(&self) -> Option<WalsenderAnswer> {
        self.answers.try_recv().ok()
    }
}

impl WalsenderWorker {
    /// Looks as long as somebody asks.
    pub async fn serve(mut self, settings: &SourceSettings) {
        let mut looks = Looks { settings, open: None, looks: WalsenderLooks::default() };
        while let Some(walsender) = looks.next_question(&mut self.questions).await {
            let pid = walsender.pid;
            let look = timeout(ANSWER_WITHIN, looks.look(&walsender)).await;
            let activity = look
                .unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
            if self.answers.send(WalsenderAnswer { pid, activity }).is_err() {
                return;
            }
        }
    }
}

struct Looks<'s> {
    settings: &'s SourceSettings,
    open: Option<(Host, Sql)>,
    looks: WalsenderLooks,
}

impl Looks<'_> {
    async fn next_question(
        &mut self,
        questions: &mut mpsc::Receiver<Walsender>,
    ) -> Option<Walsender> {
        if self.open.is_some() {
            if let Ok(question) = timeout(KEEP, questions.recv()).await {
                return question;
            }
            self.open = None;
        }
        questions.recv().await
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
            Err(error) if error.sqlstate().is_some() && error.kind() == Kind::Retry => {
                return Ok(Activity::Unclear);
            }
            Err(error) => return Err(error.to_string()),
        };
        self.ask(host, *pid, sql).await
    }

    async fn ask(&mut self, host: &Host, pid: i32, sql: Sql) -> Result<Activity, String> {
        let look = self.looks.look(&sql.client, &self.settings.slot, pid).await;
        let activity = look.map_err(|error| error.to_string())?;
        self.open = Some((host.clone(), sql));
        Ok(activity)
    }
}

#[cfg(test)]
impl WalsenderWorker {
    /// Answers the question that is out; its process id, if there is one.
    pub(super) fn answers(&mut self, activity: Result<Activity, String>) -> Option<i32> {
        let pid = self.questions.try_recv().ok()?.pid;
        self.answers.send(WalsenderAnswer { pid, activity }).ok()?;
        Some(pid)
    }
}

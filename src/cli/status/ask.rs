//! Asks relays for their `/status` and `/history`, or whether they are alive, all at once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::relay_url::RelayUrl;
use crate::base::error::{Exit, Fault};
use crate::base::http::{NoAnswer, SILENT_PROCESS_HELP, answer_within, get, get_by_address};
use crate::base::text::escaped;

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const STATUS_BYTES_MAX: usize = 256 << 10;
const LIVEZ_BYTES_MAX: usize = 64 << 10;
/// 720 samples of less than 400 bytes.
const HISTORY_BYTES_MAX: usize = 1 << 20;
const MISDIRECTED: u16 = 421;
/// A relay takes no sample more often.
const HISTORY_EVERY: Duration = Duration::from_secs(5);

/// A relay, and what it has last said.
#[derive(Clone, Debug)]
pub(super) struct AskedRelay {
    pub(super) url: RelayUrl,
    pub(super) status: Result<Value, Fault>,
    /// `null` where it was not asked for, or not answered.
    pub(super) history: Value,
    history_at: Option<Instant>,
}

impl AskedRelay {
    pub(super) fn new(url: RelayUrl) -> AskedRelay {
        let status = Err(unreachable(&url, &NoAnswer::Failed("it was not asked".to_owned())));
        AskedRelay { url, status, history: Value::Null, history_at: None }
    }

    /// Asks for the status, and where there are to be plots, for the history.
    async fn ask(&mut self, plots: bool) {
        let now = Instant::now();
        let is_old = self.history_at.is_none_or(|at| now.duration_since(at) >= HISTORY_EVERY);
        let history = async {
            match plots && is_old {
                true => json_of(&self.url, "/history", HISTORY_BYTES_MAX).await.ok(),
                false => None,
            }
        };
        let status = json_of(&self.url, "/status", STATUS_BYTES_MAX);
        let (status, history) = tokio::join!(status, history);
        if let Some(history) = history {
            (self.history, self.history_at) = (history, Some(now));
        }
        self.status = status.and_then(|status| match status["state"].is_string() {
            true => Ok(status),
            false => Err(not_a_relay(&self.url, "its answer has no state")),
        });
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.as_ref().is_ok_and(|status| status["ready"] == true)
    }

    /// The status with the URL before it, or why there is none.
    pub(super) fn to_json(&self) -> Value {
        let url = self.url.to_string();
        match &self.status {
            Ok(Value::Object(status)) => {
                let status = status.iter().map(|(name, value)| (name.clone(), value.clone()));
                std::iter::once(("url".to_owned(), url.into())).chain(status).collect()
            }
            Ok(_) => json!({ "url": url }),
            Err(Fault { code, what, mend, .. }) => {
                json!({ "url": url, "error": { "code": code, "text": what, "help": mend } })
            }
        }
    }
}

pub(super) async fn ask_all(relays: &mut [AskedRelay], plots: bool) {
    join_all(relays.iter_mut().map(|relay| relay.ask(plots))).await;
}

/// Asks whether processes are alive: returns one line for each, and whether all are.
pub(super) async fn ask_lives(relays: &[RelayUrl]) -> (String, bool) {
    let answers = join_all(relays.iter().map(ask_life)).await;
    let all = answers.iter().all(Result::is_ok);
    let lines = relays.iter().zip(&answers).map(|(url, answer)| match answer {
        Ok(()) => format!("live: {url}\n"),
        Err(why) => format!("not live: {url}: {}\n", escaped(why)),
    });
    (lines.collect(), all)
}

/// The error is the reason in the answer of the relay, or why there is none.
async fn ask_life(url: &RelayUrl) -> Result<(), String> {
    let target = format!("{}/livez", url.prefix);
    let asking = get((&url.host, url.port), &target, LIVEZ_BYTES_MAX);
    match answer_within(ANSWER_WITHIN, asking).await.map_err(|error| error.to_string())? {
        (200, _) => Ok(()),
        (status, body) => {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let reason = answer["reasons"][0]["text"].as_str().map(str::to_owned);
            Err(reason.unwrap_or_else(|| format!("it answered {status}")))
        }
    }
}

async fn json_of(url: &RelayUrl, path: &str, bytes_max: usize) -> Result<Value, Fault> {
    let target = format!("{}{path}", url.prefix);
    let asking = async {
        let answer = get((&url.host, url.port), &target, bytes_max).await?;
        // To protect browsers from DNS rebinding, a relay answers only under its addresses and under the names of
        // [admin] hosts. This command is no browser.
        match answer.0 {
            MISDIRECTED => get_by_address((&url.host, url.port), &target, bytes_max).await,
            _ => Ok(answer),
        }
    };
    match answer_within(ANSWER_WITHIN, asking).await {
        Ok((200, body)) => {
            serde_json::from_slice(&body).map_err(|_| not_a_relay(url, "its answer is no JSON"))
        }
        Ok((status, _)) => Err(not_a_relay(url, &format!("it answered {status}"))),
        Err(error) => Err(unreachable(url, &error)),
    }
}

fn unreachable(url: &RelayUrl, why: &NoAnswer) -> Fault {
    let find = format!("find it on its machine: ss -ltnp 'sport = :{}'", url.port);
    let start = "start it: walrelay run; ask another address: --url HOST:PORT";
    let (what, then) = match why {
        NoAnswer::Refused(error) => (format!("no relay listens there: {error}"), start),
        NoAnswer::Late(limit) => (
            format!(
                "no answer within {} s: the process is stopped, frozen or out of CPU, or packets are dropped on the way",
                limit.as_secs()
            ),
            SILENT_PROCESS_HELP,
        ),
        NoAnswer::Failed(error) => (format!("the relay does not answer: {error}"), start),
    };
    let mend = format!("{find}\n{then}");
    Fault::new(Exit::Failed, "status.unreachable", what, url.to_string(), mend)
}

fn not_a_relay(url: &RelayUrl, why: &str) -> Fault {
    let what = format!("what answers there is not the admin server of a relay: {why}");
    let mend = "ask the address of [admin] listen: walrelay config show | grep listen";
    Fault::new(Exit::Failed, "status.not-a-relay", what, url.to_string(), mend)
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;

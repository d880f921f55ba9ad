//! `walrelay status --live`: whether processes are alive, for a health check where there is no shell.
//!
//! It needs of the configuration `admin.listen` alone: a file that somebody is changing must not make a
//! process that works look dead.

use futures_util::future::join_all;
use serde_json::Value;

use super::ask::ANSWER_WITHIN;
use super::relay_url::RelayUrl;
use crate::base::http::{answer_within, get};
use crate::base::text::escaped;

const ANSWER_BYTES_MAX: usize = 64 << 10;

/// One line for each, and whether all are alive.
pub(super) async fn ask_all(relays: &[RelayUrl]) -> (String, bool) {
    let answers = join_all(relays.iter().map(ask)).await;
    let all = answers.iter().all(Result::is_ok);
    let lines = relays.iter().zip(&answers).map(|(url, answer)| match answer {
        Ok(()) => format!("live: {url}\n"),
        Err(why) => format!("not live: {url}: {}\n", escaped(why)),
    });
    (lines.collect(), all)
}

async fn ask(url: &RelayUrl) -> Result<(), String> {
    let target = format!("{}/livez", url.prefix);
    let asking = get((&url.host, url.port), &target, ANSWER_BYTES_MAX);
    match answer_within(ANSWER_WITHIN, asking).await.map_err(|error| error.to_string())? {
        (200, _) => Ok(()),
        (status, body) => Err(reason(&body).unwrap_or_else(|| format!("it answered {status}"))),
    }
}

/// The reason in the answer of a relay.
fn reason(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    Some(answer["reasons"][0]["text"].as_str()?.to_owned())
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;

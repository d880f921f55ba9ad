//! `walrelay resume`: shows the stop that keeps the relay from going on, and acknowledges it: over HTTP
//! where the relay waits, else where the stop is kept.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::{OutputFormat, ResumeArgs};
use super::confirm::confirm;
use super::dlq::user_at_host;
use super::output::{print, print_as, print_note, put};
use crate::admin::address::{reachable, status};
use crate::app::stops_config;
use crate::base::error::{Exit, Fault};
use crate::base::http::{answer_within, post_json};
use crate::base::runtime;
use crate::base::stop::Stop;
use crate::base::text::{escaped, escaped_lines};
use crate::config::Config;
use crate::relay::stops::Stops;
use walrelay_core::relay::stops::Place;

/// A relay on this machine answers at once, or does not run.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
/// It may have to ask Postgres and the broker.
const RESUME_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 256 << 10;

const WRONG_TOKEN_MEND: &str = "admin.token of this configuration is not that of the running relay: use its configuration, or restart the relay";

pub(super) fn run(config: &Config, args: &ResumeArgs) -> Result<Exit, Fault> {
    let waiting = waiting_relay(config);
    if let Some((stop, token)) = &waiting
        && let Some(token) = token
    {
        let resume = || resume_over_http(config, token, &args.reason.reason, stop);
        return acknowledge(stop, args, 0, "the relay tries to go on", resume);
    }
    let stops = Stops::look(stops_config(config))?;
    let mut more = 0;
    if stops.kept.standing().is_none() {
        stops.ask_system()?;
        let in_topic = stops.read_topic()?;
        more = in_topic.standing.len().saturating_sub(1);
        // What a relay finds that makes the file is acknowledged there.
        if in_topic.standing.is_empty() && waiting.is_none() && !stops.kept.lacks_file() {
            stops.look_for_gap(&in_topic)?;
        }
    }
    let waits = waiting.is_some();
    let (stop, place) = match (stops.kept.standing(), waiting) {
        (Some(standing), _) => standing,
        (None, Some((stop, _))) => return Err(token_missing(&stop)),
        (None, None) => return Err(stops.kept.nothing()),
    };
    let by = user_at_host();
    let resume = || stops.kept.resume(&by, &args.reason.reason, Some(&stop)).map(drop);
    // A relay that waits looks at its state file alone.
    let next = match (waits, place) {
        (true, Place::StateFile) => "the relay tries to go on",
        (true, _) => "restart the relay that waits",
        (false, _) => "start the relay: walrelay run",
    };
    acknowledge(&stop, args, more, next, resume)
}

/// Shows the stop, asks, and acknowledges it. `more` is the number of other stops that stand, `next` says what
/// follows.
fn acknowledge(
    stop: &Stop,
    args: &ResumeArgs,
    more: usize,
    next: &str,
    resume: impl FnOnce() -> Result<(), Fault>,
) -> Result<Exit, Fault> {
    let (format, dry_run) = (args.output.format(), args.dry_run.dry_run);
    match format {
        OutputFormat::Text => drop(print(&shown(stop))?),
        _ if !dry_run && !args.yes.yes => put(&mut std::io::stderr(), &shown(stop)),
        _ => {}
    }
    if !dry_run {
        confirm(&question(stop), args.yes.yes)?;
        resume()?;
    }
    let value = || json!({ "dry_run": dry_run, "stop": stop.to_json(), "acknowledged": !dry_run, "more": more });
    print_as(format, value, || match dry_run {
        true => String::new(),
        false => format!("{} is acknowledged; {next}\n", escaped(&stop.code)),
    })?;
    if more > 0 && !dry_run {
        print_note("another stop stands, too: run this again");
    }
    Ok(Exit::Done)
}

/// The stop of a relay that waits, and the token that it wants, if there is one.
fn waiting_relay(config: &Config) -> Option<(Stop, Option<String>)> {
    let status = status(config.admin.listen, STATUS_WITHIN).ok().flatten().unwrap_or_default();
    let stop = stop_of(&status, &config.source.slot)?;
    let token = config.admin.token.as_ref().filter(|token| !token.is_empty());
    Some((stop, token.map(|token| token.expose().to_owned())))
}

/// The stop in the `/status` of the relay with this `source.slot`; another relay may have its address.
fn stop_of(status: &Value, source_slot: &str) -> Option<Stop> {
    let text = |name: &str| status["stop"][name].as_str().unwrap_or_default().to_owned();
    if status["source_slot"] != source_slot || !status["stop"].is_object() {
        return None;
    }
    Some(Stop {
        code: text("code"),
        since_unix_us: crate::base::time::parse_rfc3339(&text("since")).unwrap_or_default(),
        what: text("what"),
        place: text("where"),
        mend: text("help"),
        from: text("from"),
        to: text("to"),
    })
}

fn resume_over_http(config: &Config, token: &str, reason: &str, stop: &Stop) -> Result<(), Fault> {
    let address = reachable(config.admin.listen);
    let host = address.ip().to_string();
    let body = json!({ "reason": reason, "code": stop.code, "since": stop.since() }).to_string();
    let at = (host.as_str(), address.port());
    let asking = post_json(at, "/api/resume", token, body, ANSWER_BYTES_MAX);
    let refused = |what: String, mend: String| {
        Fault::new(Exit::Failed, "resume.refused", what, format!("http://{address}"), mend)
    };
    match runtime::block_on(answer_within(RESUME_WITHIN, asking))? {
        Ok((200, _)) => Ok(()),
        Ok((status, body)) => {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
            let what = format!("the relay does not resume ({status}): {}", text("what"));
            Err(refused(what, refusal_mend(status, text("help"))))
        }
        Err(error) => {
            let what = format!("the relay does not answer: {error}");
            Err(refused(what, "walrelay status".to_owned()))
        }
    }
}

/// The mend of a request that the relay refuses. `help` is that of its API, which for a wrong token is the header
/// that is to be sent.
fn refusal_mend(status: u16, help: String) -> String {
    match status {
        401 => WRONG_TOKEN_MEND.to_owned(),
        _ => help,
    }
}

fn token_missing(stop: &Stop) -> Fault {
    Fault::new(
        Exit::Usage,
        "resume.no-token",
        format!("the relay waits because of {}, and its API has no token", stop.code),
        "admin.token",
        "mend the cause, then start the relay again; or set admin.token, so that it can be resumed",
    )
}

fn question(stop: &Stop) -> String {
    format!(
        "Acknowledge {}, which stands since {}? Compare what is in doubt first.",
        stop.code,
        stop.since()
    )
}

fn shown(stop: &Stop) -> String {
    let mend = escaped_lines(&stop.mend).replace('\n', "\n           ");
    let in_doubt = match (stop.from.as_str(), stop.to.as_str()) {
        ("0/0", "0/0") | ("", _) => String::new(),
        (from, to) if from == to => format!("in doubt   the event at {}\n", escaped(from)),
        (from, to) => {
            let (from, to) = (escaped(from), escaped(to));
            format!("in doubt   what was committed between {from} and {to}\n")
        }
    };
    format!(
        "stop       {}\nsince      {}\nwhat       {}\nwhere      {}\n{in_doubt}help       {mend}\n",
        escaped(&stop.code),
        stop.since(),
        escaped(&stop.what),
        escaped(&stop.place),
    )
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;

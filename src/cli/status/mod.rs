//! `walrelay status`: what relays say of themselves, on one screen.
//!
//! It asks admin servers and nothing else, so it works while database and broker do not.

mod ask;
mod live;
mod relay_url;
mod screen;
mod sparkline;
mod terminal;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use self::ask::{AskedRelay, ask_all};
use self::relay_url::RelayUrl;
use self::terminal::{Terminal, put};
use super::args::{OutputFormat, StatusArgs};
use super::output::{json_line, print, written};
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::text::truncated;
use crate::base::time::rfc3339;
use crate::cli::stop_signal::stop_signal;
use crate::config::{self, Request};

const RELAYS_MAX: usize = 64;
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &StatusArgs, request: &Request) -> Result<Exit, Vec<Fault>> {
    if args.live {
        return live(args, request);
    }
    let listen = || Ok(config::load(request)?.config.admin.listen);
    let mut relays: Vec<_> = urls(args, listen)?.into_iter().map(AskedRelay::new).collect();
    let runtime = runtime::current_thread()?;
    let outcome = runtime.block_on(async {
        match args.watch {
            true => watch(&mut relays, args.output.format()).await,
            false => once(&mut relays, args.output.format()).await,
        }
    });
    // Not dropped: that would wait for a name that is being resolved.
    runtime.shutdown_background();
    Ok(outcome?)
}

/// Every failure is exit 1: to Docker other codes than 0 and 1 mean nothing.
fn live(args: &StatusArgs, request: &Request) -> Result<Exit, Vec<Fault>> {
    let failed = |faults: Vec<Fault>| {
        let faults = faults.into_iter().map(|fault| Fault { exit: Exit::Failed, ..fault });
        faults.collect::<Vec<_>>()
    };
    let urls = urls(args, || config::admin_listen(request)).map_err(failed)?;
    let runtime = runtime::current_thread()?;
    let (lines, all) = runtime.block_on(live::ask_all(&urls));
    // Not dropped: that would wait for a name that is being resolved.
    runtime.shutdown_background();
    print(&lines)?;
    Ok(if all { Exit::Done } else { Exit::Failed })
}

/// The relays that are named, or the one that listens there.
fn urls(
    args: &StatusArgs,
    listen: impl FnOnce() -> Result<SocketAddr, Vec<Fault>>,
) -> Result<Vec<RelayUrl>, Vec<Fault>> {
    if args.urls.is_empty() {
        return Ok(vec![listen()?.into()]);
    }
    if args.urls.len() > RELAYS_MAX {
        let what = format!("{} relays are named; at most {RELAYS_MAX} are asked", args.urls.len());
        return Err(Fault::new(Exit::Usage, "status.too-many", what, "--url", "name fewer").into());
    }
    let (mut urls, mut faults) = (Vec::new(), Vec::new());
    for url in &args.urls {
        match RelayUrl::parse(url) {
            Ok(url) => urls.push(url),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(urls) } else { Err(faults) }
}

async fn once(relays: &mut [AskedRelay], format: OutputFormat) -> Result<Exit, Fault> {
    let json = format != OutputFormat::Text;
    ask_all(relays, !json).await;
    let text = match json {
        true => json_of(relays, format)?,
        false => lines_of(screen::draw(relays, &Terminal::look().style())),
    };
    written(put(&text))?;
    Ok(exit(relays))
}

/// Until Ctrl-C, SIGTERM, or until nobody reads any more; the exit code is that of the last answers.
async fn watch(relays: &mut [AskedRelay], format: OutputFormat) -> Result<Exit, Fault> {
    let json = format != OutputFormat::Text;
    let mut stopped = pin!(stop_signal()?);
    let mut seconds = interval(AGAIN_AFTER);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = String::new();
    let mut exit_code = Exit::Failed;
    let redrawn = (!json && Terminal::look().can_redraw()).then(terminal::Redrawn::begin);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            () = async {
                seconds.tick().await;
                ask_all(relays, !json).await;
            } => {}
        }
        exit_code = exit(relays);
        let terminal = Terminal::look();
        let outcome = match (json, &redrawn) {
            (true, _) => put(&json_of(relays, format)?),
            (false, None) => put(&(lines_of(timed(relays, &terminal)) + "\n")),
            (false, Some(redrawn)) => {
                let lines = timed(relays, &terminal);
                last = lines_of(lines.clone());
                redrawn.show(lines, terminal.rows)
            }
        };
        match outcome {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            outcome => written(outcome)?,
        };
    }
    if redrawn.is_some() {
        drop(redrawn);
        // What was on the screen stays to be read.
        written(put(&last))?;
    }
    Ok(exit_code)
}

/// The screen with the time above it.
fn timed(relays: &[AskedRelay], terminal: &Terminal) -> Vec<String> {
    let style = terminal.style();
    // Without the microseconds.
    let now = format!("{}Z", truncated(&rfc3339(unix_now_us()), 19));
    let mut lines = vec![style.dim(&now)];
    lines.extend(screen::draw(relays, &style));
    lines
}

/// One array on a line, or a line for each relay.
fn json_of(relays: &[AskedRelay], format: OutputFormat) -> Result<String, Fault> {
    let all = relays.iter().map(AskedRelay::to_json);
    let values = match format {
        OutputFormat::Jsonl => all.collect(),
        _ => vec![Value::Array(all.collect())],
    };
    values.iter().map(|value| Ok(json_line(value)? + "\n")).collect()
}

fn lines_of(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

fn exit(relays: &[AskedRelay]) -> Exit {
    if relays.iter().all(AskedRelay::is_ready) { Exit::Done } else { Exit::Failed }
}

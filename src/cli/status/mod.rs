//! `walrelay status`: what relays say of themselves, on one screen.
//!
//! It asks admin servers and nothing else, so it works while database and broker do not.

mod ask;
mod relay_url;
mod screen;
mod sparkline;
mod terminal;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use self::ask::{AskedRelay, ask_all, ask_lives};
use self::relay_url::RelayUrl;
use self::terminal::Terminal;
use super::args::{OutputFormat, StatusArgs};
use super::output::{json_of, print, print_to_reader};
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::text::truncated;
use crate::base::time::rfc3339;
use crate::cli::stop_signal::stop_signals;
use crate::config::{self, Request};

const RELAYS_MAX: usize = 64;
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &StatusArgs, request: &Request) -> Result<Exit, Vec<Fault>> {
    if args.live {
        return live(args, request);
    }
    let listen = || Ok(config::load(request)?.config.admin.listen);
    let mut relays: Vec<_> = urls(args, listen)?.into_iter().map(AskedRelay::new).collect();
    Ok(runtime::try_block_on(async {
        match args.watch {
            true => watch(&mut relays, args.output.format()).await,
            false => once(&mut relays, args.output.format()).await,
        }
    })?)
}

/// Says whether processes are alive, for a health check where there is no shell. It needs of the configuration
/// `admin.listen` alone: a file that somebody is changing must not make a process that works look dead. Every
/// failure is exit 1: to Docker other codes than 0 and 1 mean nothing.
fn live(args: &StatusArgs, request: &Request) -> Result<Exit, Vec<Fault>> {
    let failed = |faults: Vec<Fault>| {
        let faults = faults.into_iter().map(|fault| Fault { exit: Exit::Failed, ..fault });
        faults.collect::<Vec<_>>()
    };
    let urls = urls(args, || config::admin_listen(request)).map_err(failed)?;
    let (lines, all) = runtime::block_on(ask_lives(&urls))?;
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
        true => json_of(format, &values_of(relays))?,
        false => lines_of(screen::draw(relays, &Terminal::look().style())),
    };
    print(&text)?;
    Ok(exit(relays))
}

/// Until Ctrl-C, SIGTERM, or until nobody reads any more; the exit code is that of the last answers.
async fn watch(relays: &mut [AskedRelay], format: OutputFormat) -> Result<Exit, Fault> {
    let json = format != OutputFormat::Text;
    let mut stopped = stop_signals()?;
    let mut seconds = interval(AGAIN_AFTER);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = String::new();
    let mut exit_code = Exit::Failed;
    let redrawn = (!json && Terminal::look().can_redraw()).then(terminal::Redrawn::begin);
    loop {
        tokio::select! {
            () = stopped() => break,
            () = async {
                seconds.tick().await;
                ask_all(relays, !json).await;
            } => {}
        }
        exit_code = exit(relays);
        let terminal = Terminal::look();
        let text = match (json, &redrawn) {
            (true, _) => json_of(format, &values_of(relays))?,
            (false, None) => lines_of(timed(relays, &terminal)) + "\n",
            (false, Some(_)) => {
                let lines = timed(relays, &terminal);
                last = lines_of(lines.clone());
                terminal::frame(lines, terminal.rows)
            }
        };
        if !print_to_reader(&text)? {
            break;
        }
    }
    if redrawn.is_some() {
        drop(redrawn);
        // What was on the screen stays to be read.
        print(&last)?;
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

fn values_of(relays: &[AskedRelay]) -> Vec<Value> {
    relays.iter().map(AskedRelay::to_json).collect()
}

fn lines_of(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

fn exit(relays: &[AskedRelay]) -> Exit {
    if relays.iter().all(AskedRelay::is_ready) { Exit::Done } else { Exit::Failed }
}

//! `walrelay compare`: what polling costs and how late it is, beside the slot, on one's own database
//! and broker.
//!
//! Each mode runs under the same load, one after the other, in a process of its own and on a scratch
//! schema, slot and topic, which are removed whatever happens. Loss, repetition and disorder are
//! counted before anything is called fast.

mod child;
mod consumer;
mod cost;
pub mod json;
mod load;
mod measure;
pub mod page;
pub mod plan;
mod proc;
pub mod relay;
pub mod report;
mod site;
pub mod table;
mod tally;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_postgres::Client;

use self::consumer::Consumer;
use self::measure::Bench;
use self::plan::Plan;
use self::report::{Report, Settings};
use self::site::Site;
use crate::config::{Config, Request};
use crate::error::{Exit, Fault};
use crate::sink::scratch::Scratch;
use crate::sink::{Broker, UNREACHABLE};
use crate::source::preflight::query_fault;
use crate::source::settings::ConnInfo;

/// What was asked for.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The user's configuration.
    pub config: &'a Config,
    /// Where it came from, for the relay that is measured.
    pub request: &'a Request,
    /// What to compare.
    pub plan: &'a Plan,
}

/// Who is told how it goes.
pub trait Watcher {
    /// Something begins, or was found.
    fn say(&mut self, text: &str);

    /// How it stands; comes several times a second.
    fn live(&mut self, now: &Live);
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// What runs: `cdc at 100/s`.
    pub what: String,
    /// Until it is over.
    pub left: Duration,
    /// Events at the consumer.
    pub delivered: u64,
    /// Events that there will be.
    pub events: u64,
    /// Of the last events.
    pub p50_ms: Option<f64>,
}

/// Compares. Nothing of it stays, neither after an error nor after SIGINT or SIGTERM.
pub fn run(asked: Asked<'_>, watcher: &mut dyn Watcher) -> Result<Report, Fault> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| broken(&error.to_string()))?;
    let outcome = runtime.block_on(compare(asked, watcher));
    // Not waited for: a name that is being resolved would hold it up.
    runtime.shutdown_background();
    outcome
}

async fn compare(asked: Asked<'_>, watcher: &mut dyn Watcher) -> Result<Report, Fault> {
    let config = asked.config;
    let name = site::fresh_name();
    config.sink.toward_scratch(&name)?;
    let listen = |kind| signal(kind).map_err(|error| broken(&error.to_string()));
    let mut signals = [
        listen(SignalKind::interrupt())?,
        listen(SignalKind::terminate())?,
        listen(SignalKind::hangup())?,
        listen(SignalKind::quit())?,
    ];
    let site = Site::open(config, &name).await?;
    watcher.say(&asked.plan.announcement());
    watcher.say(&format!("everything is made under the name {name}, and removed at the end"));
    // A signal waits until this is done: what is made behind a removal would stay.
    let own = name.clone();
    // A broker that is lost on the way may have made something by then.
    let scratch = at_broker(&config.sink, move |broker| broker.make_scratch(&own)).await;
    let outcome = match scratch {
        Err(fault) => Err(fault),
        Ok(scratch) => tokio::select! {
            outcome = begin(asked, &site, scratch, watcher) => outcome,
            signal = stopped(&mut signals) => Err(interrupted(signal)),
        },
    };
    watcher.say("removing what was made");
    let removed = tidy_up(config, &name).await;
    match (outcome, removed) {
        (Ok(report), Ok(())) => Ok(report),
        (Ok(_), Err(left)) => Err(left),
        (Err(fault), Ok(())) => Err(fault),
        (Err(fault), Err(left)) if left.code == UNREACHABLE && fault.code == UNREACHABLE => {
            watcher.say(&format!("if the broker has something of the name {name}, remove it"));
            Err(fault)
        }
        (Err(fault), Err(left)) => {
            watcher.say(&left.to_string());
            Err(fault)
        }
    }
}

async fn begin(
    asked: Asked<'_>,
    site: &Site,
    scratch: Box<dyn Scratch>,
    watcher: &mut dyn Watcher,
) -> Result<Report, Fault> {
    let plan = asked.plan;
    clear_away_the_abandoned(asked, site, watcher).await?;
    let version = site.client.query_typed_one("SELECT current_setting('server_version')", &[]);
    let version = version.await.map_err(|error| failed(&error, "asking for its version"))?;
    let mut report = Report {
        began_unix_us: now_unix_us(),
        machine: proc::machine(),
        postgres_version: version.get(0),
        sink: scratch.kind().to_owned(),
        broker: scratch.place(),
        settings: Settings {
            rates: plan.rates.clone(),
            intervals_ms: plan.intervals.iter().map(|it| it.as_millis() as u64).collect(),
            duration_s: plan.duration.as_secs_f64(),
            payload_bytes: plan::PAYLOAD_BYTES,
            keys: plan::KEYS as usize,
            backlog_events: plan.backlog,
        },
        ..Report::default()
    };
    let mut bench = Bench::open(asked, site, Consumer::start(scratch)?).await?;
    report.machine.database_is_local = bench.is_local();
    for rate in &plan.rates {
        for mode in plan.modes() {
            report.runs.push(bench.run(mode, *rate, watcher).await?);
        }
    }
    for mode in plan.drains() {
        report.drains.push(bench.drain(mode, plan.backlog, watcher).await?);
    }
    Ok(report)
}

/// Removes what a comparison that died has left: its slot would keep WAL for ever.
async fn clear_away_the_abandoned(
    asked: Asked<'_>,
    site: &Site,
    watcher: &mut dyn Watcher,
) -> Result<(), Fault> {
    for name in site.abandoned().await? {
        match tidy_up(asked.config, &name).await {
            Ok(()) => {
                watcher.say(&format!("removed {name}, left behind by a comparison that died"))
            }
            Err(left) => watcher.say(&left.to_string()),
        }
    }
    Ok(())
}

/// Both sides are tried; what is left on both is told as one.
async fn tidy_up(config: &Config, name: &str) -> Result<(), Fault> {
    let database = site::remove(&config.source.connection, name).await;
    let own = name.to_owned();
    let broker = at_broker(&config.sink, move |broker| broker.remove_scratch(&own)).await;
    match (database, broker) {
        (Err(database), Err(broker)) => {
            let mend = format!("{}\n{broker}", database.mend);
            Err(Fault { mend, ..database })
        }
        (database, broker) => database.and(broker),
    }
}

/// Asks a broker something on a thread where that may take its time.
async fn at_broker<T: Send + 'static>(
    broker: &Arc<dyn Broker>,
    ask: impl FnOnce(&dyn Broker) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let broker = Arc::clone(broker);
    let asked = tokio::task::spawn_blocking(move || ask(&*broker));
    asked.await.unwrap_or_else(|error| Err(broken(&error.to_string())))
}

async fn stopped(signals: &mut [Signal; 4]) -> &'static str {
    let [interrupt, terminate, hangup, quit] = signals;
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
        _ = hangup.recv() => "SIGHUP",
        _ = quit.recv() => "SIGQUIT",
    }
}

fn interrupted(signal: &str) -> Fault {
    Fault::new(
        Exit::Failed,
        "compare.interrupted",
        format!("stopped by {signal} before all of it was measured"),
        "",
        "",
    )
}

/// Connects for SQL under this name.
async fn connect(info: &ConnInfo, application_name: &str) -> Result<Client, Fault> {
    let info = ConnInfo { application_name: application_name.to_owned(), ..info.clone() };
    let connected = crate::source::sql::connect(&info).await;
    connected.map(|sql| sql.client).map_err(|error| error.fault(&info, "", ""))
}

fn failed(error: &tokio_postgres::Error, doing: &str) -> Fault {
    query_fault(error, doing)
}

/// What the system refuses, or should be impossible.
fn broken(reason: &str) -> Fault {
    let mend = "look at the limits of the process (ulimit -a, container limits)";
    Fault::new(Exit::Failed, "system.refused", format!("the comparison broke: {reason}"), "", mend)
}

fn now_unix_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

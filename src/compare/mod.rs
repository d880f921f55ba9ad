//! `walrelay compare`: what polling costs and how late it is, beside the slot, on one's own database
//! and broker.
//!
//! Each mode runs under the same load, one after the other, in a process of its own and on a scratch
//! schema, slot and topic, which are removed whatever happens. Loss, repetition and disorder are
//! counted before anything is called fast. What was finished is given, whatever came after it.

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
mod signals;
mod site;
pub mod table;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use self::consumer::Consumer;
use self::measure::Bench;
use self::plan::Plan;
use self::report::{Report, Settings};
use self::signals::{Signals, interrupted};
use self::site::Site;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::config::{Config, Request};
use crate::doctor::source::query_fault;
use crate::relay::unix_now_us;
use crate::sink::Broker;
use crate::sink::bench_target::Scratch;
use crate::source::settings::ConnInfo;

/// How long Postgres may take for a statement; a new slot waits for transactions of others in it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

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

/// What a comparison comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// None when nothing was finished.
    pub report: Option<Report>,
    /// What ended it early, then what could not be removed.
    pub faults: Vec<Fault>,
}

/// Compares. Nothing of it stays, neither after an error nor after a signal, as far as it can be
/// removed and no second signal comes.
pub fn run(asked: Asked<'_>, watcher: &mut dyn Watcher) -> Outcome {
    let runtime = match runtime::multi_thread(2, "compare") {
        Ok(runtime) => runtime,
        Err(fault) => return Outcome { report: None, faults: vec![fault] },
    };
    let mut report = Report::default();
    let faults = match runtime.block_on(compare(asked, &mut report, watcher)) {
        Ok(faults) => faults,
        Err(fault) => vec![fault],
    };
    // Not waited for: a name that is being resolved would hold it up.
    runtime.shutdown_background();
    let nothing = report.runs.is_empty() && report.drains.is_empty();
    Outcome { report: (!nothing).then_some(report), faults }
}

/// Fails when nothing was made, else tells all that went wrong.
async fn compare(
    asked: Asked<'_>,
    report: &mut Report,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Fault>, Fault> {
    let config = asked.config;
    let name = site::fresh_name();
    config.sink.toward_scratch(&name)?;
    let mut signals = Signals::listen()?;
    let site = tokio::select! {
        site = Site::open(config, &name) => site?,
        signal = signals.next() => return Err(interrupted(signal)),
    };
    watcher.say(&asked.plan.announcement());
    watcher.say(&format!("everything is made under the name {name}, and removed at the end"));
    let own = name.clone();
    let mut making = at_broker(&config.sink, move |broker| broker.make_scratch(&own));
    let ended = tokio::select! {
        ended = measure(asked, &site, &mut making, report, watcher) => ended,
        signal = signals.next() => Err(interrupted(signal)),
    };
    report.incomplete = ended.as_ref().err().map(|fault| cut_short(asked.plan, report, fault));
    watcher.say("removing what was made; a second signal would leave it behind");
    let removing = async {
        // What is made behind a removal would stay; a broker that is lost may have made something.
        if !making.is_finished() {
            answer(&mut making).await.ok();
        }
        tidy_up(config, &name).await
    };
    let removed = tokio::select! {
        removed = removing => removed,
        signal = signals.second() => Err(left_behind(config, &name, signal)),
    };
    Ok(match (ended, removed) {
        // What hindered both is told once, with all that is left.
        (Err(fault), Err(left)) if left.code == fault.code => vec![left],
        (ended, removed) => ended.err().into_iter().chain(removed.err()).collect(),
    })
}

/// What is finished is in the report when this ends, however it ends.
async fn measure(
    asked: Asked<'_>,
    site: &Site,
    making: &mut JoinHandle<Result<Box<dyn Scratch>, Fault>>,
    report: &mut Report,
    watcher: &mut dyn Watcher,
) -> Result<(), Fault> {
    let plan = asked.plan;
    let scratch = answer(making).await?;
    clear_away_the_abandoned(asked, site, watcher).await?;
    let version =
        site.client.query_typed_one("SELECT pg_catalog.current_setting('server_version')", &[]);
    let version = version.await.map_err(|error| failed(&error, "asking for its version"))?;
    *report = Report {
        began_unix_us: unix_now_us(),
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
    Ok(())
}

/// How far it came, and why no further.
fn cut_short(plan: &Plan, report: &Report, fault: &Fault) -> String {
    let drains = match plan.drains().len() {
        0 => String::new(),
        all => format!(" and {} of {all} drains", report.drains.len()),
    };
    let (runs, all) = (report.runs.len(), plan.modes().len() * plan.rates.len());
    format!("{runs} of {all} runs{drains} were finished: {}", fault.what)
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
    let broker = answer(&mut at_broker(&config.sink, move |it| it.remove_scratch(&own))).await;
    match (database, broker) {
        (Err(database), Err(broker)) => {
            let mend = format!("{}\n{broker}", database.mend);
            Err(Fault { mend, ..database })
        }
        (database, broker) => database.and(broker),
    }
}

/// The removal was not waited for.
fn left_behind(config: &Config, name: &str, signal: &str) -> Fault {
    let what = format!("stopped by a second signal, {signal}, before all of {name} was removed");
    let mend = format!("{}\n{}", site::left_over_sql(name), config.sink.scratch_by_hand(name));
    Fault::new(Exit::Failed, site::LEFT_OVER, what, "", mend)
}

/// Asks a broker something on a thread where that may take its time.
fn at_broker<T: Send + 'static>(
    broker: &Arc<dyn Broker>,
    ask: impl FnOnce(&dyn Broker) -> Result<T, Fault> + Send + 'static,
) -> JoinHandle<Result<T, Fault>> {
    let broker = Arc::clone(broker);
    tokio::task::spawn_blocking(move || ask(&*broker))
}

async fn answer<T>(asked: &mut JoinHandle<Result<T, Fault>>) -> Result<T, Fault> {
    asked.await.unwrap_or_else(|error| Err(broken(&error.to_string())))
}

/// Connects for SQL under this name.
async fn connect(info: &ConnInfo, application_name: &str) -> Result<Client, Fault> {
    let own = info.options.as_deref().unwrap_or_default();
    let info = ConnInfo {
        application_name: application_name.to_owned(),
        // Not by SET, whose transaction would be counted; of two, the last one holds.
        options: Some(format!("{own} -c statement_timeout={}", ANSWERED_WITHIN.as_millis())),
        ..info.clone()
    };
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

//! `walrelay compare`: what polling costs and how late it is, beside the slot, on one's own database
//! and broker.
//!
//! Each mode runs under the same load, one after the other, in a process of its own and on a scratch
//! schema, slot and topic, which are removed whatever happens. Loss, repetition and disorder are
//! counted before anything is called fast. What was finished is given, whatever came after it.
//!
//! ```text
//! plan ─► scratch_source ─┬► load ─────► Postgres ─► relay_process ─► broker ─► arrivals ─┐
//!                         └► postgres_cost, process_stats                                 ├► report
//!         measure: one run or drain with all of these ────────────────────────────────────┘
//! report ─► tables, measures ─► verdict ─► terminal, page; or JSON
//! ```

mod arrivals;
mod load;
mod measure;
mod measures;
mod numbers;
pub(crate) mod page;
pub(crate) mod plan;
mod postgres_cost;
mod process_stats;
pub(crate) mod relay_process;
pub(crate) mod report;
mod scratch_source;
mod signals;
mod tables;
pub(crate) mod terminal;
#[cfg(test)]
mod testing;
mod verdict;

use std::sync::Arc;

use tokio::task::JoinHandle;

use self::arrivals::ArrivalReader;
use self::measure::Measurement;
pub(crate) use self::measure::{ComparisonWatcher, RunProgress};
use self::plan::{ComparisonPlan, ComparisonRequest};
use self::report::ComparisonReport;
use self::scratch_source::{LEFT_OVER, ScratchSource, left_over_sql};
use self::signals::{StopSignals, interrupted};
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::config::Config;
use crate::sink::Broker;
use crate::sink::bench_target::BenchTarget;

/// What a comparison comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ComparisonOutcome {
    /// None when nothing was finished.
    pub(crate) report: Option<ComparisonReport>,
    /// What ended it early, then what could not be removed.
    pub(crate) faults: Vec<Fault>,
}

/// Compares. Nothing of it stays, neither after an error nor after a signal, as far as it can be
/// removed and no second signal comes.
pub(crate) fn run(
    request: ComparisonRequest<'_>,
    watcher: &mut dyn ComparisonWatcher,
) -> ComparisonOutcome {
    let mut report = ComparisonReport::default();
    let faults = runtime::multi_thread(2, "compare").and_then(|runtime| {
        let faults = runtime.block_on(compare(request, &mut report, watcher));
        // Not waited for: a name that is being resolved would hold it up.
        runtime.shutdown_background();
        faults
    });
    let nothing = report.runs.is_empty() && report.drains.is_empty();
    let faults = faults.unwrap_or_else(|fault| vec![fault]);
    ComparisonOutcome { report: (!nothing).then_some(report), faults }
}

/// Fails when nothing was made yet; else returns everything that went wrong.
async fn compare(
    request: ComparisonRequest<'_>,
    report: &mut ComparisonReport,
    watcher: &mut dyn ComparisonWatcher,
) -> Result<Vec<Fault>, Fault> {
    let (config, plan) = (request.config, request.plan);
    let name = scratch_source::fresh_name();
    config.sink.for_bench_target(&name)?;
    let mut signals = StopSignals::listen()?;
    let source = tokio::select! {
        source = ScratchSource::open(config, &name) => source?,
        signal = signals.next() => return Err(interrupted(signal)),
    };
    watcher.announce(&plan.announcement());
    watcher.announce(&format!("everything is made under the name {name}, and removed at the end"));
    let own = name.clone();
    let mut making = at_broker(&config.sink, move |broker| broker.create_bench_target(&own));
    let ended = tokio::select! {
        ended = measure(request, &source, &mut making, report, watcher) => ended,
        signal = signals.next() => Err(interrupted(signal)),
    };
    report.incomplete = ended.as_ref().err().map(|fault| cut_short(plan, report, fault));
    watcher.announce("removing what was made; a second signal would leave it behind");
    let removing = async {
        // What is made behind a removal would stay; a broker that is lost may have made something.
        if !making.is_finished() {
            answer(&mut making).await.ok();
        }
        remove(config, &name).await
    };
    let removed = tokio::select! {
        removed = removing => removed,
        signal = signals.second() => Err(left_behind(config, &name, signal)),
    };
    Ok(match (ended, removed) {
        // A cause that both have in common is reported once, with all that is left.
        (Err(fault), Err(left)) if left.code == fault.code => vec![left],
        (ended, removed) => ended.err().into_iter().chain(removed.err()).collect(),
    })
}

/// What is finished is in the report when this ends, however it ends.
async fn measure(
    request: ComparisonRequest<'_>,
    source: &ScratchSource,
    making: &mut JoinHandle<Result<Box<dyn BenchTarget>, Fault>>,
    report: &mut ComparisonReport,
    watcher: &mut dyn ComparisonWatcher,
) -> Result<(), Fault> {
    let plan = request.plan;
    let target = answer(making).await?;
    remove_abandoned(request.config, source, watcher).await?;
    *report = ComparisonReport {
        began_unix_us: unix_now_us(),
        machine: process_stats::machine(),
        postgres_version: source.server_version().await?,
        sink: target.kind().to_owned(),
        broker: target.place(),
        plan: plan.clone(),
        ..ComparisonReport::default()
    };
    let reader = ArrivalReader::start(target)?;
    let mut measurement = Measurement::open(request, source, reader, watcher).await?;
    report.machine.database_is_local = measurement.database_is_local();
    for rate in &plan.rates {
        for mode in plan.modes() {
            report.runs.push(measurement.run(mode, *rate).await?);
        }
    }
    for mode in plan.drains() {
        report.drains.push(measurement.drain(mode).await?);
    }
    Ok(())
}

/// How far it came, and why no further.
fn cut_short(plan: &ComparisonPlan, report: &ComparisonReport, fault: &Fault) -> String {
    let drains = match plan.drains().len() {
        0 => String::new(),
        all => format!(" and {} of {all} drains", report.drains.len()),
    };
    let (runs, all) = (report.runs.len(), plan.modes().len() * plan.rates.len());
    format!("{runs} of {all} runs{drains} were finished: {}", fault.what)
}

/// Removes what a comparison that died has left: its slot would keep WAL for ever.
async fn remove_abandoned(
    config: &Config,
    source: &ScratchSource,
    watcher: &mut dyn ComparisonWatcher,
) -> Result<(), Fault> {
    for name in source.abandoned().await? {
        let text = match remove(config, &name).await {
            Ok(()) => format!("removed {name}, left behind by a comparison that died"),
            Err(left) => left.to_string(),
        };
        watcher.announce(&text);
    }
    Ok(())
}

/// Tries both sides; what is left on both is one fault.
async fn remove(config: &Config, name: &str) -> Result<(), Fault> {
    let database = scratch_source::remove(&config.source.connection, name).await;
    let own = name.to_owned();
    let broker = answer(&mut at_broker(&config.sink, move |it| it.remove_bench_target(&own))).await;
    match (database, broker) {
        (Err(database), Err(broker)) => {
            let mend = format!("{}\n{broker}", database.mend);
            Err(Fault { mend, ..database })
        }
        (database, broker) => database.and(broker),
    }
}

/// The fault of a removal that a second signal has ended.
fn left_behind(config: &Config, name: &str, signal: &str) -> Fault {
    let what = format!("stopped by a second signal, {signal}, before all of {name} was removed");
    let mend = format!("{}\n{}", left_over_sql(name), config.sink.bench_target_removal(name));
    Fault::new(Exit::Failed, LEFT_OVER, what, "", mend)
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
    let refused =
        |error: tokio::task::JoinError| runtime::refused("a broker's answer", &error.into());
    asked.await.unwrap_or_else(|error| Err(refused(error)))
}

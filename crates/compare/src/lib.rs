//! `walrelay compare`: measures the slot and polling on the user's own database and broker: latency,
//! cost, the speed of draining a backlog, and whether every event arrived once and in order.
//!
//! Each mode runs under the same load, one after the other, in a process of its own and on a
//! scratch schema, slot and topic, which are removed at the end, after a fault and after a signal.
//! Runs that were finished are reported even if a later one fails.
//!
//! ```text
//! plan ─► scratch_source ─┬► load ─────► Postgres ─► relay_process ─► broker ─► arrivals ─┐
//!                         └► postgres_cost                                                ├► report
//!         measure: one run or drain with all of these ────────────────────────────────────┘
//! report ─► tables ─► terminal, page; or JSON
//! ```

mod arrivals;
mod load;
mod measure;
pub mod page;
pub mod plan;
mod postgres_cost;
pub mod relay_process;
pub mod report;
mod scratch_source;
mod tables;
pub mod terminal;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use walrelay_measure::process;

use self::arrivals::ArrivalReader;
use self::measure::Measurement;
pub use self::measure::{ComparisonWatcher, RunProgress};
use self::plan::{ComparisonPlan, ComparisonRequest};
use self::report::{ComparisonReport, Machine};
use self::scratch_source::{LEFT_OVER, ScratchSource, left_over_sql};
use walrelay_base::clock::unix_now_us;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::runtime;
use walrelay_base::stop_requests::{StopRequest, StopRequests};
use walrelay_sink::Broker;
use walrelay_sink::bench_target::BenchTarget;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparisonOutcome {
    /// None when no run and no drain was finished.
    pub report: Option<ComparisonReport>,
    /// The faults that ended the comparison early, then those of objects that could not be removed.
    pub faults: Vec<Fault>,
}

pub fn run(
    request: ComparisonRequest<'_>,
    watcher: &mut dyn ComparisonWatcher,
) -> ComparisonOutcome {
    let mut report = ComparisonReport::default();
    let faults = runtime::multi_thread(2, "compare").and_then(|runtime| {
        let faults = runtime.block_on(compare(request, &mut report, watcher));
        // Dropping the runtime would wait for a name that is still being resolved.
        runtime.shutdown_background();
        faults
    });
    let is_empty = report.runs.is_empty() && report.drains.is_empty();
    let faults = faults.unwrap_or_else(|fault| vec![fault]);
    ComparisonOutcome { report: (!is_empty).then_some(report), faults }
}

/// Fails if it ends before anything was created; afterwards it returns all faults.
async fn compare(
    request: ComparisonRequest<'_>,
    report: &mut ComparisonReport,
    watcher: &mut dyn ComparisonWatcher,
) -> Result<Vec<Fault>, Fault> {
    let ComparisonRequest { sink, plan, .. } = request;
    let name = scratch_source::fresh_name();
    sink.for_bench_target(&name)?;
    let mut signals = StopSignals::listen()?;
    let source = tokio::select! {
        source = ScratchSource::open(request.source, &name) => source?,
        signal = signals.first() => return Err(interrupted(signal)),
    };
    watcher.announce(&plan.announcement());
    watcher.announce(&format!("everything is made under the name {name}, and removed at the end"));
    let target = name.clone();
    let mut making = at_broker(sink, move |broker| broker.create_bench_target(&target));
    let ended = tokio::select! {
        ended = measure(request, &source, &mut making, report, watcher) => ended,
        signal = signals.first() => Err(interrupted(signal)),
    };
    report.incomplete = ended.as_ref().err().map(|fault| cut_short(plan, report, fault));
    watcher.announce("removing what was made; a second signal would leave it behind");
    let removing = async {
        // A target that is still being created would be created after its removal. What the broker
        // answers does not matter here: it may have created something before it failed.
        if !making.is_finished() {
            answer(&mut making).await.ok();
        }
        remove(request, &name).await
    };
    let removed = tokio::select! {
        removed = removing => removed,
        signal = signals.second() => Err(left_behind(&**sink, &name, signal)),
    };
    Ok(match (ended, removed) {
        // The same cause is reported once, with the commands that remove what is left.
        (Err(fault), Err(left)) if left.code == fault.code => vec![left],
        (ended, removed) => ended.err().into_iter().chain(removed.err()).collect(),
    })
}

/// Adds each run to the report as soon as it is finished, so that a cancelled comparison keeps it.
async fn measure(
    request: ComparisonRequest<'_>,
    source: &ScratchSource,
    making: &mut JoinHandle<Result<Box<dyn BenchTarget>, Fault>>,
    report: &mut ComparisonReport,
    watcher: &mut dyn ComparisonWatcher,
) -> Result<(), Fault> {
    let plan = request.plan;
    let target = answer(making).await?;
    // A comparison that was killed leaves a slot behind, which would keep WAL for ever.
    for name in source.abandoned().await? {
        watcher.announce(&match remove(request, &name).await {
            Ok(()) => format!("removed {name}, left behind by a comparison that died"),
            Err(left) => left.to_string(),
        });
    }
    *report = ComparisonReport {
        began_unix_us: unix_now_us(),
        machine: Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: process::machine_memory_bytes(),
            load_average: process::load_average(),
            database_is_local: false,
        },
        postgres_version: source.server_version().await?,
        sink: target.kind().to_owned(),
        sink_title: request.sink.kind().title.to_owned(),
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

fn cut_short(plan: &ComparisonPlan, report: &ComparisonReport, fault: &Fault) -> String {
    let drains = match plan.drains().len() {
        0 => String::new(),
        all => format!(" and {} of {all} drains", report.drains.len()),
    };
    let (runs, all) = (report.runs.len(), plan.modes().len() * plan.rates.len());
    format!("{runs} of {all} runs{drains} were finished: {}", fault.what)
}

/// Removes everything of this name from Postgres and from the broker, even if one of them fails.
async fn remove(request: ComparisonRequest<'_>, name: &str) -> Result<(), Fault> {
    let database = scratch_source::remove(&request.source.connection, name).await;
    let _was_missing = std::fs::remove_file(measure::state_file(name)).is_err();
    let target = name.to_owned();
    let mut removing = at_broker(request.sink, move |broker| broker.remove_bench_target(&target));
    match (database, answer(&mut removing).await) {
        (Err(database), Err(broker)) => {
            let mend = format!("{}\n{broker}", database.mend);
            Err(Fault { mend, ..database })
        }
        (database, broker) => database.and(broker),
    }
}

fn left_behind(sink: &dyn Broker, name: &str, signal: &str) -> Fault {
    let what = format!("stopped by a second signal, {signal}, before all of {name} was removed");
    let mend = format!("{}\n{}", left_over_sql(name), sink.bench_target_removal(name));
    Fault::new(Exit::Failed, LEFT_OVER, what, "", mend)
}

fn interrupted(signal: &str) -> Fault {
    let what = format!("stopped by {signal} before all of it was measured");
    Fault::new(Exit::Failed, "compare.interrupted", what, "", "")
}

/// Calls the broker's client, which blocks, on a thread of its own.
fn at_broker<T: Send + 'static>(
    broker: &Arc<dyn Broker>,
    ask: impl FnOnce(&dyn Broker) -> Result<T, Fault> + Send + 'static,
) -> JoinHandle<Result<T, Fault>> {
    let broker = Arc::clone(broker);
    tokio::task::spawn_blocking(move || ask(&*broker))
}

async fn answer<T>(asked: &mut JoinHandle<Result<T, Fault>>) -> Result<T, Fault> {
    let answer = asked.await;
    answer.unwrap_or_else(|error| Err(runtime::refused("a broker's answer", &error.into())))
}

/// The first signal ends the measurement, a second one also the removal. A signal that comes while
/// nothing waits for it is kept.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    requests: StopRequests,
}

impl StopSignals {
    fn listen() -> Result<StopSignals, Fault> {
        let listen = |kind, name| signal(kind).map_err(|error| runtime::refused(name, &error));
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            hangup: listen(SignalKind::hangup(), "SIGHUP")?,
            quit: listen(SignalKind::quit(), "SIGQUIT")?,
            requests: StopRequests::default(),
        })
    }

    async fn first(&mut self) -> &'static str {
        self.next().await.0
    }

    async fn next(&mut self) -> (&'static str, StopRequest) {
        let name = tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
            _ = self.quit.recv() => "SIGQUIT",
        };
        (name, self.requests.receive(Instant::now()))
    }

    /// A signal after the first. SIGHUP does not count: a terminal that closes may send it twice,
    /// and nobody would read which commands remove what is left.
    async fn second(&mut self) -> &'static str {
        loop {
            let (name, request) = self.next().await;
            if request == StopRequest::Second && name != "SIGHUP" {
                return name;
            }
        }
    }
}
